// @ts-check
/**
 * How long nothing has come of a task that is said to be running, and what may honestly be said about it: the
 * connection is alive, the writer is silent. Pure, but for the time that it is given.
 *
 * @typedef {{ms: number, began: boolean, stale: boolean, unit: string | null}} Silence
 *   ms: since something was heard; began: whether something came since the worker took the task; stale: its lease has
 *   run out
 */

export const QUIET_MS = 3_000;
export const LONG_MS = 6_000; // from here on it is explained what happens next
const ITEMS_MS = 10_000; // an item is a whole answer: nobody expects one every second
const CONTENT = new Set(["chunk", "item", "progress"]);

export class Listening {
  #heard = 0; // ms by the server's clock
  #began = false;

  /**
   * @param {readonly import("./stream.js").TaskEvent[]} events @param {boolean} replaying they may be older than now
   * @param {number} now
   * @param {import("./stream.js").TaskView} [view] behind them
   */
  hear(events, replaying, now, view) {
    // A replay tells what there is, not in which order it came: where something is written, nobody says it has not begun.
    if (replaying && view) this.#began ||= view.text.length > 0 || Object.keys(view.items).length > 0;
    for (const { type, data } of events) {
      if (type === "status" && data.state === "processing" && !replaying) this.#began = false;
      if (CONTENT.has(type)) this.#began = true;
      this.#note(replaying ? Date.parse(data.at ?? data.saved_at ?? "") : now);
    }
  }

  /** What the task object says: when it was changed last. @param {Record<string, any>} task */
  look(task) {
    this.#note(Date.parse(task.updated_at ?? ""));
  }

  /** @param {number} at */
  #note(at) {
    if (at > this.#heard) this.#heard = at; // NaN is not greater
  }

  /** The silence of a task that is being written; null when there is none.
   * @param {string} state @param {Record<string, any>} task @param {number} now @returns {Silence | null} */
  silence(state, task, now) {
    if (state !== "processing" || this.#heard === 0) return null;
    const ms = now - this.#heard;
    const patience = task.unit === "items" && !task.stale ? ITEMS_MS : QUIET_MS;
    if (ms < patience) return null;
    return { ms, began: this.#began, stale: Boolean(task.stale), unit: task.unit ?? null };
  }
}

/** For the pill: beside a live connection. @param {Silence} silence */
export function silenceWords({ ms, began, stale, unit }) {
  const for_ = `${Math.floor(ms / 1000)} s`;
  if (stale) return `Nothing heard from the worker for ${for_}`;
  if (!began) return `The model has not begun, for ${for_}`;
  return unit === "items" ? `No item finished for ${for_}` : `Nothing heard from the model for ${for_}`;
}

/** For the banner: what it may be, and what happens next. @param {Silence} silence @param {string} recovery
 * @returns {[string, string]} */
export function silenceAdvice({ began, stale }, recovery) {
  const next = recovery === "manual" ? "the task pauses with all that was written, and waits for Recover" : "another worker goes on from exactly here";
  if (stale) return ["The worker is lost, as it seems. ", `In a moment ${next}.`];
  const model = began ? "The model is slow, or its worker was lost." : "The model may be loading or reading a long prompt, or its worker was lost.";
  return ["Nothing new has come for a while. ", `The connection is fine. ${model} If so, it is noticed when the worker's lease runs out, and ${next}.`];
}

/** What a live connection is live for, when nothing is being written. @param {string} state @param {string | null} retryAt */
export function waitingWords(state, retryAt) {
  if (state === "pending") return retryAt ? "Live, starts later" : "Live, waiting for a worker";
  if (state === "recovering") return retryAt ? "Live, waiting for the next try" : "Live, waiting for a worker";
  return state === "paused" ? "Live, paused" : "";
}
