// @ts-check
/** The story of one task as this page tells it: what the task did, and how this viewer came and went. Kept for the tab. */

import { serverNow } from "./api.js";
import { createdEntry, entryOf, placeOf, presence, reconnectEntry, tell } from "./history.js";
import { keepStory, recallStory } from "./recent.js";

const MOST_SAVES = 200;
const AWAY = new Set(["reconnecting", "offline"]);

/** @typedef {import("./history.js").Entry} Entry */
/** @typedef {import("./stream.js").LinkStatus} LinkStatus */

/** When the event after this one was, ms: an end that was none ("failed", then replayed) does not say its own time.
 * @param {readonly {data: any}[]} items @param {number} i */
function spoken(items, i) {
  const at = Date.parse(items[i + 1]?.data.at ?? "");
  return Number.isFinite(at) ? at : null;
}

export class Story {
  /** Oldest first. @type {readonly Entry[]} */ list;
  /** When it was saved, ms. @type {number[]} */ saves = [];
  /** Breaks of this page's connection. */ seen = { reconnects: 0, replayed: 0 };
  #id;
  #opened = serverNow();
  /** @type {number | null} */ #awaySince = null;
  /** @type {number | null} */ #reconnects = null; // of the connection, when last looked at
  #replayed = 0; // events of this task in the replay that is under way
  #place = 0; // in the log
  #ended = Number.NaN; // ms, as the task says

  /** @param {string} id @param {Record<string, any>} task */
  constructor(id, task) {
    this.#id = id;
    this.#ended = Date.parse(task.finished_at ?? "");
    this.list = tell(recallStory(id), createdEntry(task));
  }

  /** A task that was done at once is told as accepted, too. @param {Record<string, any>} task */
  look(task) {
    this.#ended = Date.parse(task.finished_at ?? "");
    this.#tell(createdEntry(task));
  }

  /** What happened before this viewer came: a replay leaves out what is superseded.
   * @param {readonly {id: string, event: string, data: any}[]} items */
  recall(items) {
    items.forEach(({ id, event, data }, i) => this.#tell(entryOf({ id, type: event, data }, spoken(items, i) ?? this.#end())));
  }

  /** When the task ended, for an event that does not say it: as the task says, or just now. */
  #end() {
    return Number.isFinite(this.#ended) ? this.#ended : serverNow();
  }

  /** @param {readonly import("./stream.js").TaskEvent[]} events @param {string} cursor behind them
   * @param {boolean} replaying */
  hear(events, cursor, replaying) {
    const place = placeOf(cursor);
    if (replaying) this.#replayed += Math.max(0, place - this.#place);
    else this.#replayed = 0;
    this.#place = place;
    const before = this.list;
    for (const event of events) {
      this.#tell(entryOf(event, this.#end()));
      if (event.type === "checkpoint") this.saves = [...this.saves, Date.parse(event.data.saved_at)].slice(-MOST_SAVES);
    }
    if (this.list !== before) keepStory(this.#id, this.list); // not for every token
  }

  /** @param {LinkStatus} status
   * @returns {{entry: Entry | null, back: boolean}} what it means for this viewer; whether the connection is back */
  connect(status) {
    const back = this.#reconnects !== null && status.reconnects > this.#reconnects;
    this.#reconnects = status.reconnects;
    this.#awaySince = AWAY.has(status.phase) ? (this.#awaySince ?? serverNow()) : null;
    if (!back || status.last === null) return { entry: null, back };
    const here = { ...status.last, events: this.#replayed };
    const entry = reconnectEntry(here, serverNow() - Date.now() + here.at);
    this.seen = { reconnects: this.seen.reconnects + 1, replayed: this.seen.replayed + this.#replayed };
    this.#replayed = 0;
    this.#tell(entry);
    keepStory(this.#id, this.list);
    return { entry, back };
  }

  /** When this page was connected, until `to` (ms). @param {number} to */
  presence(to) {
    return presence(this.list, this.#opened, to, this.#awaySince);
  }

  /** @param {Entry | null} entry */
  #tell(entry) {
    if (entry) this.list = tell(this.list, entry);
  }
}
