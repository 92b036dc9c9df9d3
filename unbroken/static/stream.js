// @ts-check
/**
 * Watch a task of an Unbroken server: from a page, a worker or node 20. No dependencies, no DOM. Its parts are in the
 * folder `stream/`, which has to lie beside this file.
 *
 *     import { follow, textOf } from "https://host/static/stream.js";
 *
 *     const task = follow("0-abc", { base: "https://host" });
 *     task.on("change", (view) => show(textOf(view.text), view.progress));
 *     task.on("connection", ({ phase, retryAt, reconnects, replayed }) => ...);
 *     const end = await task.finished;      // completed, failed or cancelled; rejects (ApiError) when it is refused
 *     await task.recover();                 // also pause(), cancel()
 *     task.drop();                          // cut the line, to see it heal
 *     task.close();
 *
 * The text is exact at every moment (see `fold`), over any number of lost connections: nothing has to be stored, since
 * a new viewer gets the whole state from the server. `followMany` does the same for several tasks on one connection.
 *
 * @typedef {import("./stream/fold.js").TaskView} TaskView
 * @typedef {import("./stream/fold.js").TaskEvent} TaskEvent
 * @typedef {import("./stream/link.js").LinkStatus} LinkStatus
 * @typedef {import("./stream/problems.js").Problem} Problem
 *
 * @typedef {object} FollowOptions
 * @property {string} [base]          address of the server; "" = where the page came from
 * @property {typeof fetch} [fetch]   another fetch, for tests or special agents
 * @property {string} [key]           API key, sent as `Authorization: Bearer`; pages use the sign-in cookie instead
 * @property {number} [silenceMs]     35,000: the server says something every 15 s
 * @property {number} [retryMs]       1,000: wait before a reconnect until the server names its own
 * @property {number} [maxDelayMs]    30,000: longest wait added to the server's own `retry`
 * @property {() => number} [random]
 * @property {TaskView} [view]        go on from a view that is already here
 */

import { act, authorization, checked, checkedId, missingOf } from "./stream/calls.js";
import { Emitter } from "./stream/emitter.js";
import { INITIAL, fold, isTerminal } from "./stream/fold.js";
import { Link } from "./stream/link.js";
import { listenToTheMachine } from "./stream/machine.js";
import { ApiError } from "./stream/problems.js";

export { INITIAL, TERMINAL, fold, isTerminal } from "./stream/fold.js";
export { Link } from "./stream/link.js";
export { ApiError, explain } from "./stream/problems.js";
export { commonLength, pointsOf, slice, textOf } from "./stream/rope.js";
export { SseParser } from "./stream/sse.js";

const MAX_RESTARTS = 5;
const RESTARTS_WITHIN_MS = 60_000;
/** @type {Problem} */
const DAMAGED = {
  status: 0,
  code: "damaged",
  message: "The stream does not fit together, even from the start. The stored result is still right: open that.",
};

/** @param {import("./stream/sse.js").RawEvent} raw @returns {TaskEvent | null} null for what is not ours */
function decode(raw) {
  try {
    const data = JSON.parse(raw.data);
    return data !== null && typeof data === "object" ? { type: raw.type, data, id: raw.id } : null;
  } catch {
    return null;
  }
}

/**
 * Several tasks on one connection. Events:
 *   "change" (taskId, view, events)   after every batch of events of a task
 *   "connection" (LinkStatus)         the state of the connection
 *   "refused" (Problem, taskIds)      the server will not serve these tasks, nothing more comes of them: one that was
 *                                     removed is let go and the others go on; with all of them, the connection has ended
 */
export class Followers extends Emitter {
  /** @type {FollowOptions} */ #options;
  /** @type {Map<string, TaskView>} */ #views = new Map(); // of wanted tasks, and of some that were wanted lately
  /** @type {Set<string>} */ #wanted = new Set();
  /** @type {Set<string>} */ #asked = new Set(); // what this connection was opened for
  /** @type {Set<string>} */ #covered = new Set(); // what the cursor may say something about
  #stopListening = () => {};
  /** @type {Map<string, {count: number, at: number}>} */ #restarts = new Map(); // of tasks that missed something
  #closed = false;
  #single;

  /** @param {Iterable<string>} ids @param {FollowOptions} options @param {boolean} [single] use the task's own stream */
  constructor(ids, options, single = false) {
    super(["change", "connection", "refused"]);
    this.#options = options;
    this.#single = single;
    for (const id of ids) this.#views.set(id, options.view ?? INITIAL);
    this.#wanted = new Set([...this.#views.keys()].map(checkedId));
    const { fetch, silenceMs, retryMs, maxDelayMs, random } = options;
    /** The connection; its `status` is always the newest. */
    this.link = new Link({
      fetch, silenceMs, retryMs, maxDelayMs, random,
      url: () => this.#url(),
      headers: () => authorization(options),
      onEvents: (raw) => this.#take(raw),
      onStatus: (status) => this.#tell(status),
      onLast: (problem, signal) => this.#last(problem, signal),
    });
    this.#stopListening = listenToTheMachine(this.link);
    queueMicrotask(() => { // after the first on()
      if (this.#wanted.size > 0 && !this.#closed) this.link.start(options.view?.lastEventId);
    });
  }

  /** The tasks that are watched. */
  get ids() {
    return [...this.#wanted];
  }

  /** @param {string} id @returns {TaskView} */
  view(id) {
    return this.#views.get(id) ?? INITIAL;
  }

  /** Watches one more task. @param {string} id */
  add(id) {
    this.set([...this.ids, id]);
  }

  /** Watches exactly these tasks; views of those that stay are kept. @param {Iterable<string>} ids @returns {void} */
  set(ids) {
    if (this.#closed) return undefined;
    this.#wanted = new Set([...ids].map(checkedId));
    const fresh = this.ids.filter((id) => !this.#views.has(id));
    if (this.#wanted.size === 0) return this.link.stop();
    if (fresh.length === 0) {
      // Fewer tasks, or some that came back: their views are still as new as the cursor, nothing has to be sent again.
      if (!this.link.running && !this.#allEnded) this.link.start();
      return undefined;
    }
    this.#views = new Map(this.ids.map((id) => [id, this.view(id)]));
    // A task that was watched before has a place in the cursor, but its view was let go: only the start will do.
    return this.link.reopen("changed", fresh.some((id) => this.#covered.has(id)) ? "" : this.link.cursor);
  }

  get #allEnded() {
    return this.ids.every((id) => isTerminal(this.view(id)));
  }

  /** Begins again after an end: a dead letter was replayed, or somebody signed in. */
  resume() {
    if (!this.#closed && this.#wanted.size > 0) this.link.reopen("changed");
  }

  /** Cuts the connection on purpose; it comes back by itself. */
  drop() {
    this.link.drop();
  }

  /** Stops watching, for good. */
  close() {
    this.#closed = true;
    this.#stopListening();
    this.link.stop();
  }

  #url() {
    // From here on nothing comes for tasks that are not wanted any more: their views would grow old.
    for (const id of this.#views.keys()) if (!this.#wanted.has(id)) this.#views.delete(id);
    this.#asked = new Set(this.#wanted);
    const base = this.#options.base ?? "";
    if (this.#single) return `${base}/api/tasks/${encodeURIComponent(this.ids[0])}/stream`;
    return `${base}/api/stream?${this.ids.map((id) => `task=${encodeURIComponent(id)}`).join("&")}`;
  }

  /** @param {import("./stream/sse.js").RawEvent[]} raws */
  #take(raws) {
    /** @type {Map<string, TaskEvent[]>} */
    const changed = new Map();
    for (const raw of raws) {
      const event = decode(raw);
      const id = this.#single ? this.ids[0] : event?.data.task_id;
      const view = this.#views.get(id);
      if (event === null || view === undefined) continue;
      this.#views.set(id, fold(view, event));
      const events = changed.get(id);
      if (events) events.push(event);
      else changed.set(id, [event]);
    }
    if (changed.size > 0) this.#covered = new Set(this.#asked); // the server keeps only these in its cursors
    for (const [id, events] of changed) {
      if (this.#wanted.has(id)) this.emit("change", id, this.view(id), events);
      else if (this.view(id).missed) this.#views.delete(id); // should it come back, then from the start
    }
    if (this.#closed) return; // whoever heard of it had seen enough
    const missed = [...changed.keys()].filter((id) => this.#wanted.has(id) && this.view(id).missed);
    if (missed.length > 0) this.#again(missed);
    else if (this.#wanted.size > 0 && this.#allEnded) this.link.finish();
  }

  /** Something was missed: the whole story once more, but not for ever. @param {string[]} ids */
  #again(ids) {
    const now = Date.now();
    /** @type {string[]} */
    const damaged = [];
    for (const id of ids) {
      const before = this.#restarts.get(id);
      const count = before && now - before.at < RESTARTS_WITHIN_MS ? before.count + 1 : 1;
      this.#restarts.set(id, { count, at: now });
      if (count > MAX_RESTARTS) damaged.push(id);
    }
    if (damaged.length > 0 && !this.#letGo(damaged, DAMAGED)) return this.link.finish(DAMAGED);
    if (damaged.length < ids.length) this.link.reopen("missed", "");
    else if (this.#allEnded) this.link.finish();
    return undefined;
  }

  /** The others go on without these. @param {string[]} ids @param {Problem} problem @returns {boolean} there are others */
  #letGo(ids, problem) {
    if (this.ids.every((id) => ids.includes(id))) return false;
    for (const id of ids) {
      this.#wanted.delete(id);
      this.#views.delete(id);
      this.#restarts.delete(id);
    }
    this.emit("refused", problem, ids);
    return true;
  }

  /** The server says that this is all, or refuses. One task that is not there takes no other one's stream away.
   * @param {Problem | null} problem @param {AbortSignal} signal @returns {Promise<import("./stream/link.js").Verdict>} */
  async #last(problem, signal) {
    if (problem === null) {
      // The end lies behind the cursor, but it never came here whole: asked for once more, from the start.
      const missed = this.link.cursor === "" ? [] : this.ids.filter((id) => !isTerminal(this.view(id)));
      if (missed.length === 0) return "end";
      this.#again(missed);
      return "later"; // what #again said counts
    }
    if (this.#single || (problem.status !== 404 && problem.status !== 410)) return "end";
    const gone = await missingOf([...this.#asked], this.#options, signal);
    if (signal.aborted || gone.length === 0) return "later"; // it is there again, or could not be asked for
    if (!this.#letGo(gone, problem)) return "end";
    if (!this.#allEnded) return "again";
    this.link.finish();
    return "end";
  }

  /** @param {LinkStatus} status */
  #tell(status) {
    this.emit("connection", status);
    if (status.phase === "ended" && status.error !== null) this.emit("refused", status.error, this.ids);
  }
}

/** One task. Events: "change" (view, events), "connection" (LinkStatus), "end" (view, Problem | null). */
export class Follower extends Emitter {
  /** @type {FollowOptions} */ #options;
  #many;
  /** @type {(view: TaskView) => void} */ #finish = () => {};
  /** @type {(error: ApiError) => void} */ #fail = () => {};

  /** @param {string} taskId @param {FollowOptions} options */
  constructor(taskId, options) {
    super(["change", "connection", "end"]);
    this.taskId = taskId;
    this.#options = options;
    /** Resolves with the view when the task has ended, or with what is known so far at close(). Rejects with an
     * ApiError when the server will not serve the stream: no such task (404), not signed in (401), gone (410).
     * @type {Promise<TaskView>} */
    this.finished = new Promise((resolve, reject) => {
      this.#finish = resolve;
      this.#fail = reject;
    });
    this.finished.catch(() => {}); // who listens to "end" only has heard of it
    this.#many = new Followers([taskId], options, true);
    this.#many.on("change", (_id, view, events) => this.emit("change", view, events));
    this.#many.on("connection", (status) => this.#tell(status));
  }

  /** @returns {TaskView} */
  get view() {
    return this.#many.view(this.taskId);
  }

  /** @returns {LinkStatus} */
  get connection() {
    return this.#many.link.status;
  }

  /** Continues a paused task from its checkpoint. @returns {Promise<any>} `recovery_id`, `from_checkpoint` */
  recover() {
    return this.#act("recover");
  }

  /** Stops the task and keeps its progress. @returns {Promise<any>} the task */
  pause() {
    return this.#act("pause");
  }

  /** Stops the task for good. @returns {Promise<any>} the task */
  cancel() {
    return this.#act("cancel");
  }

  drop() {
    this.#many.drop();
  }

  resume() {
    this.#many.resume();
  }

  close() {
    this.#many.close();
    this.#finish(this.view);
  }

  /** @param {LinkStatus} status */
  #tell(status) {
    this.emit("connection", status);
    if (status.phase !== "ended") return;
    this.emit("end", this.view, status.error);
    if (status.error === null) this.#finish(this.view);
    else this.#fail(new ApiError(status.error));
  }

  /** @param {string} what @returns {Promise<any>} @throws {ApiError} */
  #act(what) {
    return act(this.taskId, what, this.#options);
  }
}

/** Watches one task on its own stream. @param {string} taskId @param {FollowOptions} [options]
 * @throws {TypeError} for an option that does not exist, and for what is not an id */
export function follow(taskId, options = {}) {
  return new Follower(checkedId(taskId), checked(options));
}

/** Watches several tasks on one connection. @param {Iterable<string>} ids @param {FollowOptions} [options]
 * @throws {TypeError} for an option that does not exist, and for what is no list of ids */
export function followMany(ids, options = {}) {
  if (typeof ids === "string") throw new TypeError("followMany takes a list of task ids: followMany([id])");
  const all = [...ids];
  if (options?.view && all.length > 1) throw new TypeError("a view is one task's: follow(id, { view })");
  return new Followers(all, checked(options));
}
