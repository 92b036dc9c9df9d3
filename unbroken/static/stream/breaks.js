// @ts-check
/**
 * What a break of the connection cost: how long it was away, and what was replayed. Counting only; nothing here
 * decides what is read.
 *
 * @typedef {object} Reconnect   one break that healed
 * @property {number} at         when the connection was back, ms since 1970 by the local clock
 * @property {number} downMs     how long it was away
 * @property {string} why        dropped, silence, network, closed, woken, missed, http-502 ...
 * @property {number} frames     frames that brought this viewer up to date
 * @property {number | null} events  events of the log that they stand for, where the ids tell
 */

const SETTLE_MS = 40; // a read that had to wait this long waited for something new: the replay was over
const BURST_MS = 150; // a busy task leaves no such gap; but after this long, what comes in
const SMALL = 8 * 1024; // ... small reads is news as well: a replay comes in large ones

export class Breaks {
  /** @type {{at: number, why: string} | null} */ #lost = null;
  /** @type {{from: string, frames: number, at: number} | null} */ #replay = null;

  /** Whether what comes just now is the past, sent again. */
  get replaying() {
    return this.#replay !== null;
  }

  /** A new life: what was lost before is nobody's any more. */
  forget() {
    this.#lost = null;
  }

  /** The line is gone; told again while it is away, it stays the first. @param {string} why */
  lost(why) {
    this.#lost ??= { at: Date.now(), why };
  }

  /** It is back, and asks for what comes after `from`. @param {string} from */
  opened(from) {
    this.#replay = { from, frames: 0, at: Date.now() };
  }

  /** @param {number} frames that came */
  count(frames) {
    if (this.#replay) this.#replay.frames += frames;
  }

  /** Whether these bytes are new, not the past. @param {number} waited ms for them @param {number} bytes */
  isNews(waited, bytes) {
    if (this.#replay === null || this.#replay.frames === 0) return false;
    return waited > SETTLE_MS || (bytes < SMALL && Date.now() - this.#replay.at > BURST_MS);
  }

  /** The replay is over: now it is known what the break cost. @param {string} cursor where it ended
   * @returns {Reconnect | null} null: there was no break, or it has been told */
  settle(cursor) {
    const [replay, lost] = [this.#replay, this.#lost];
    if (replay === null) return null;
    this.#replay = null;
    this.#lost = null;
    if (lost === null) return null;
    const events = eventsBetween(replay.from, cursor);
    return { at: replay.at, downMs: replay.at - lost.at, why: lost.why, frames: replay.frames, events };
  }
}

/**
 * How many events of the log lie between two cursors, for people to read; null when the ids do not tell. The ids stay
 * opaque for everything that matters.
 * @param {string} from @param {string} to
 */
export function eventsBetween(from, to) {
  const [a, b] = [from, to].map((id) => /^\d+-(\d+)$/.exec(id));
  if (!b || (from !== "" && !a)) return null;
  return Math.max(0, Number(b[1]) - (a ? Number(a[1]) : 0));
}
