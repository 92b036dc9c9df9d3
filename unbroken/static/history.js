// @ts-check
/**
 * The story of a task, told from its events and from this viewer's own connection. Pure.
 *
 * @typedef {"start"|"lost"|"wait"|"pause"|"recover"|"save"|"end"|"bad"|"back"} Mark
 * @typedef {{key: string, mark: Mark, at: number, title: string, detail: string, count?: number, from?: number, lost?: number}} Entry
 *   at: ms; lost: the attempt whose worker was lost; from: of a break of this viewer's connection, when it began
 */

import { duration, percent, plural, reasonWords } from "./format.js";

const MOST = 300;

/** @param {any} data @returns {[Mark, string, string]} */
function status(data) {
  const { state, attempt, reason } = data;
  if (state === "processing") {
    return attempt > 1
      ? ["recover", `Attempt ${attempt} continues`, "A worker took the task and went on from what was saved."]
      : ["start", "Started", "A worker took the task."];
  }
  if (state === "paused") {
    const lost = reason === "worker_lost" || reason === "checkpoint_failed";
    return [lost ? "lost" : "pause", lost ? "Stopped" : "Paused", reasonWords(reason ?? null)];
  }
  if (state === "recovering") {
    if (reason === "worker_lost") return ["lost", "Worker lost", "What it wrote is kept; another worker will go on."];
    if (reason === "shutdown") return ["wait", "Handed over", "Its worker was shut down in order; nothing is lost."];
    if (data.retry_at) return ["wait", "Waits for another try", "Something went wrong that may pass."];
    return ["wait", "Going to continue", "From what was saved, as soon as a worker is free."];
  }
  return ["wait", state, ""];
}

/** A task's own event id: on a stream of several tasks, the id is a list and its last part belongs to the event. For
 * telling and counting only; as a cursor an id stays opaque. @param {string} id */
export function ownId(id) {
  return id.slice(Math.max(id.lastIndexOf(","), id.lastIndexOf(":")) + 1);
}

/** The place of an event in its task's log: 1, 2, 3 ... @param {string} id */
export function placeOf(id) {
  return Number(/-(\d+)$/.exec(id)?.[1] ?? 0);
}

/** @param {import("./stream.js").TaskEvent} event @param {number} now @returns {Entry | null} */
export function entryOf({ type, data, id }, now) {
  const key = ownId(id ?? "");
  if (type === "status") {
    if (data.state === "pending") return null; // that it was accepted is told already
    const [mark, title, detail] = status(data);
    return { key: `${data.state}:${data.attempt}:${data.at ?? key}`, mark, at: time(data.at, now), title, detail, ...(data.reason === "worker_lost" && { lost: data.attempt }) };
  }
  if (type === "checkpoint") {
    const detail = `Up to ${percent(data.progress ?? 0)}`;
    return { key: `save:${data.saved_at}`, mark: "save", at: time(data.saved_at, now), title: "Saved", detail, count: 1 };
  }
  if (type === "done") return { key: "end", mark: "end", at: time(data.finished_at, now), title: "Completed", detail: "" };
  if (type === "failed") {
    return { key: `failed:${key}`, mark: "bad", at: now, title: "Failed", detail: String(data.error?.message ?? "") };
  }
  if (type === "cancelled") return { key: "cancelled", mark: "bad", at: now, title: "Cancelled", detail: "" };
  return null;
}

/** @param {any} task @returns {Entry} */
export function createdEntry(task) {
  const detail = task.sender ? `By ${task.sender}` : "";
  return { key: "created", mark: "wait", at: Date.parse(task.created_at), title: "Accepted", detail };
}

/** @param {string | undefined} when @param {number} now */
function time(when, now) {
  const at = Date.parse(when ?? "");
  return Number.isFinite(at) ? at : now;
}

/** @type {Record<string, string>} */
const WHY = {
  dropped: "you dropped it", silence: "nothing was heard", network: "the network went away",
  closed: "the server closed it", woken: "this device had slept", missed: "something was missing",
};

/** @param {import("./stream.js").LinkStatus["last"] & {}} back @param {number} at @returns {Entry} */
export function reconnectEntry(back, at) {
  const events = back.events ?? back.frames;
  const what = events === 0 ? "nothing was missed" : `${plural(events, "event")} replayed`;
  const why = WHY[back.why] ?? "the server was not ready";
  return {
    key: `you:${back.at}`, mark: "back", at, from: at - back.downMs, title: "You reconnected",
    detail: `Away for ${duration(back.downMs)} because ${why}; ${what}.`,
  };
}

/** Adds an entry in its place. Told twice is told once; neighbouring saves are one line.
 * @param {readonly Entry[]} list oldest first @param {Entry} entry @returns {readonly Entry[]} */
export function tell(list, entry) {
  const last = list.at(-1);
  if (entry.mark === "save" && last?.mark === "save" && entry.at >= last.at) {
    if (last.key === entry.key) return list;
    const count = (last.count ?? 1) + 1;
    const merged = { ...entry, count, title: `Saved ${plural(count, "time")}` };
    return [...list.slice(0, -1), merged];
  }
  if (list.some((other) => other.key === entry.key || (entry.mark === "save" && other.mark === "save" && other.at >= entry.at))) {
    return list;
  }
  const at = list.findLastIndex((other) => other.at <= entry.at) + 1;
  return [...list.slice(0, at), entry, ...list.slice(at)].slice(-MOST);
}

/** How many workers were lost over the task; its own counter begins anew with a recovery. @param {readonly Entry[]} list */
export function lostIn(list) {
  return new Set(list.map(({ lost }) => lost).filter((attempt) => attempt !== undefined)).size;
}

/**
 * The stretches of a task's life, for the drawing.
 * @param {readonly Entry[]} list @param {number} from @param {number} to
 * @returns {{from: number, to: number, how: "wait" | "run" | "pause" | "lost" | "over"}[]}
 */
export function stretches(list, from, to) {
  /** @type {Partial<Record<Mark, "wait" | "run" | "pause" | "lost" | "over">>} */
  const means = { start: "run", recover: "run", lost: "lost", wait: "wait", pause: "pause", end: "over", bad: "over" };
  /** @type {{from: number, to: number, how: any}[]} */
  const out = [{ from, to, how: "wait" }];
  for (const { mark, at } of list) {
    const how = means[mark];
    if (how === undefined) continue;
    const last = /** @type {{from: number, to: number}} */ (out.at(-1));
    last.to = Math.max(last.from, Math.min(at, to));
    out.push({ from: last.to, to, how });
  }
  return out.filter((one) => one.to > one.from && one.how !== "over");
}

/**
 * When this viewer was there, and when not.
 * @param {readonly Entry[]} list @param {number} opened when this page came @param {number} to
 * @param {number | null} awaySince of a break that has not healed yet
 * @returns {{from: number, to: number, how: "here" | "away"}[]}
 */
export function presence(list, opened, to, awaySince) {
  const breaks = list.flatMap(({ mark, from, at }) => (mark === "back" && from !== undefined && at > opened ? [{ from, at }] : []));
  if (awaySince !== null) breaks.push({ from: awaySince, at: to });
  /** @type {{from: number, to: number, how: "here" | "away"}[]} */
  const out = [];
  let from = opened;
  for (const one of breaks) {
    out.push({ from, to: Math.min(one.from, to), how: "here" }, { from: Math.max(from, one.from), to: Math.min(one.at, to), how: "away" });
    from = Math.max(from, one.at);
  }
  out.push({ from, to, how: "here" });
  return out.filter((one) => one.to > one.from);
}
