// @ts-check
/** Numbers, times and states in words. Pure. */

const NUMBER = new Intl.NumberFormat("en");

/** @param {number} n */
export function count(n) {
  return NUMBER.format(n);
}

/** @param {number} n @param {string} one @param {string} [many] */
export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** @param {number} part 0..1 */
export function percent(part) {
  return `${Math.floor(100 * Math.min(1, Math.max(0, part)))} %`;
}

/** A length of time in its two largest parts. @param {number} ms */
export function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** A length of time that is only guessed. @param {number} s seconds */
export function roughly(s) {
  if (s < 90) return `${Math.max(1, Math.round(s))} s`;
  return s < 5_400 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;
}

/** How long ago, short enough for a list. @param {string | number | null} when @param {number} [now] */
export function age(when, now = Date.now()) {
  if (when === null || when === undefined) return "";
  const s = (now - new Date(when).getTime()) / 1000;
  if (!Number.isFinite(s)) return "";
  if (s < 5) return "now";
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

/** The same in a sentence: "just now", "5 min ago". @param {string | number | null} when @param {number} [now] */
export function ago(when, now = Date.now()) {
  const said = age(when, now);
  if (said === "now") return "just now";
  return said === "" ? "" : `${said} ago`;
}

/** @param {string | number} when */
export function clock(when) {
  return new Date(when).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** @type {Record<string, string>} */
const STATES = {
  pending: "Waiting",
  processing: "Writing",
  paused: "Paused",
  recovering: "Recovering",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
};

/** @param {string} state */
export function stateWord(state) {
  return STATES[state] ?? state;
}

/** @type {Record<string, string>} */
const REASONS = {
  worker_lost: "The worker that was running this task was lost.",
  timeout: "The task ran longer than it was allowed to.",
  requested: "The task was paused by hand.",
  checkpoint_failed: "Progress could not be saved several times in a row, so the task stopped to be safe.",
};

/** @param {string | null} reason */
export function reasonWords(reason) {
  return reason === null ? "The task is paused." : (REASONS[reason] ?? `The task is paused (${reason}).`);
}

/** @type {Record<string, string>} */
const KINDS = { text: "Text", batch: "Batch", chain: "Chain" };

/** @param {string} kind */
export function kindWord(kind) {
  return KINDS[kind] ?? kind;
}

/** @type {Record<string, string>} */
const ENDS = { completed: "Complete", failed: "Failed", cancelled: "Cancelled" };

/** The state of the connection, in words.
 * @param {import("./stream/link.js").LinkStatus} status
 * @param {{state?: string, live?: string, now?: number}} [about]  the task's state; what a living line is to say */
export function connectionWords(status, { state = "", live = "", now = Date.now() } = {}) {
  const wait = status.retryAt === null ? 0 : Math.ceil((status.retryAt - now) / 1000);
  switch (status.phase) {
    case "live": return live || "Live";
    case "caught-up": return live || "Live, caught up";
    case "connecting": return "Connecting";
    case "reconnecting": return wait > 0 ? `Reconnecting in ${wait} s` : "Reconnecting";
    case "offline": return wait > 0 ? `Offline, trying again in ${wait} s` : "Offline, trying again";
    case "ended": return status.error ? "Not connected" : (ENDS[state] ?? "Ended");
    default: return "Not connected";
  }
}
