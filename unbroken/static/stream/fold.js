// @ts-check
/**
 * What a viewer knows of a task, as a pure function of the events it got: `state = fold(state, event)`.
 *
 * Every event is idempotent under the fold: seen twice, or replayed from an older place together with what follows,
 * the end is the same. Nothing here reads a clock, an id's inside, or the network.
 *
 * @typedef {import("./rope.js").Rope} Rope
 * @typedef {{type: string, data: any, id?: string}} TaskEvent  `data` is the decoded JSON
 * @typedef {{ok: boolean, result?: unknown, error?: any}} ItemResult
 * @typedef {"pending"|"processing"|"paused"|"recovering"|"completed"|"failed"|"cancelled"} TaskStateName
 *
 * @typedef {object} TaskView
 * @property {TaskStateName} state
 * @property {string | null} reason      why it is paused: worker_lost, timeout, requested, checkpoint_failed
 * @property {number} attempt            claims of this task by a worker, so far
 * @property {string | null} retryAt     ISO time of the next try, while one is waiting
 * @property {string | null} at          ISO time of the newest status event
 * @property {number} progress           0..1
 * @property {number | null} done        in `unit`; all of them, once it is completed
 * @property {number | null} total       in `unit`
 * @property {string | null} unit        tokens, items, steps
 * @property {Rope} text
 * @property {Readonly<Record<number, ItemResult>>} items
 * @property {{offset: number, progress: number, savedAt: string} | null} checkpoint   "saved up to here"
 * @property {{length: number, sha256: string, finishedAt: string, result: string} | null} end  set by `done`
 * @property {{code: string, message: string, retryable?: boolean} | null} error       set by `failed`
 * @property {boolean} missed            a chunk lay beyond the end: fetch the task again from the start
 * @property {string} lastEventId        the cursor; opaque
 */

import { EMPTY, append, cut } from "./rope.js";

export const TERMINAL = new Set(["completed", "failed", "cancelled"]);

/** @type {Readonly<TaskView>} */
export const INITIAL = Object.freeze({
  state: "pending",
  reason: null,
  attempt: 0,
  retryAt: null,
  at: null,
  progress: 0,
  done: null,
  total: null,
  unit: null,
  text: EMPTY,
  items: Object.freeze({}),
  checkpoint: null,
  end: null,
  error: null,
  missed: false,
  lastEventId: "",
});

/** @param {TaskView} view */
export function isTerminal(view) {
  return TERMINAL.has(view.state);
}

/** Whether the result is the text. Of a kind of items it is the items, whatever text they came with.
 * @param {TaskView} view */
function isText(view) {
  return view.unit !== "items" && Object.keys(view.items).length === 0;
}

/** @type {Record<string, (view: TaskView, data: any) => Partial<TaskView>>} */
const EVENTS = {
  status: (view, data) => ({
    state: data.state ?? view.state,
    attempt: data.attempt ?? view.attempt,
    reason: data.reason ?? null,
    retryAt: data.retry_at ?? null,
    at: data.at ?? view.at,
    ...(TERMINAL.has(data.state) ? {} : { error: null, end: null }), // a dead letter that was replayed lives again
  }),
  chunk: (view, data) => {
    const { offset, text } = data;
    // A cut is not done on a chunk that lies beyond the end: what is shown stays until the replay brings the truth.
    // Neither is one made on what cannot be a chunk: whatever it was, it is not here.
    const sound = Number.isSafeInteger(offset) && offset >= 0 && typeof text === "string";
    if (!sound || offset > view.text.length) return { missed: true };
    return {
      text: append(cut(view.text, offset), text),
      progress: data.progress ?? view.progress,
      missed: false,
    };
  },
  progress: (view, data) => ({
    progress: data.progress ?? view.progress,
    done: data.done ?? null,
    total: data.total ?? null,
    unit: data.unit ?? view.unit,
  }),
  item: (view, data) => ({
    items: {
      ...view.items,
      [data.index]: data.ok ? { ok: true, result: data.result } : { ok: false, error: data.error },
    },
  }),
  checkpoint: (_view, data) => ({
    checkpoint: { offset: data.offset, progress: data.progress, savedAt: data.saved_at },
  }),
  done: (view, data) => ({
    state: data.state ?? "completed",
    // The end says how long the text is: a shorter one here means that something was missed.
    missed: typeof data.length === "number" && view.text.length < data.length && isText(view),
    reason: null,
    retryAt: null,
    progress: 1,
    done: view.total ?? view.done, // the last count before the end may be older than the end
    end: { length: data.length, sha256: data.sha256, finishedAt: data.finished_at, result: data.result },
  }),
  failed: (_view, data) => ({ state: data.state ?? "failed", reason: null, retryAt: null, error: data.error ?? null }),
  cancelled: (_view, data) => ({ state: data.state ?? "cancelled", reason: null, retryAt: null }),
};

/**
 * The next view. Unknown events change nothing but the cursor, so that a newer server can add some.
 * @param {TaskView} view
 * @param {TaskEvent} event
 * @returns {TaskView}
 */
export function fold(view, event) {
  const lastEventId = event.id || view.lastEventId;
  const change = Object.hasOwn(EVENTS, event.type) ? EVENTS[event.type](view, event.data) : {};
  return { ...view, ...change, lastEventId };
}
