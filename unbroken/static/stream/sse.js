// @ts-check
/**
 * A push parser for `text/event-stream`: bytes in, events out, no I/O.
 *
 * It follows the HTML standard ("Server-sent events", parsing and interpreting an event stream): LF, CR and CRLF line
 * ends, a BOM at the start, comments, `id` with NUL ignored, an unfinished event at the end dropped. Bytes may be cut
 * anywhere, inside a CRLF or inside a UTF-8 character.
 *
 * @typedef {{type: string, data: string, id: string}} RawEvent  `id` is the last id seen so far, "" before the first
 */

/** Longest line, and longest event, kept, in UTF-16 units. A frame holds at most 64 KiB of text, six times that when escaped; the rest is
 * room. Without a limit a broken proxy that never sends a line end would fill the memory. */
export const MAX_LINE = 16 * 1024 * 1024;

export class SseParser {
  /** @type {TextDecoder} */ #decoder = new TextDecoder("utf-8");
  #rest = "";
  #scanned = 0;
  #afterCr = false;
  #type = "";
  /** @type {string[]} */ #data = [];
  #size = 0; // of the data being read
  #id = ""; // of the event being read
  #lastId = ""; // of the last one that was complete: a line may be cut right after its `id:`

  /** Milliseconds the server asked to wait before a reconnect, or null. @type {number | null} */
  retry = null;
  /** Comment lines seen: heartbeats, mostly. */
  comments = 0;

  /** @param {string} [lastEventId] the cursor this connection was opened with */
  constructor(lastEventId = "") {
    this.#id = this.#lastId = lastEventId;
  }

  /** The id to come back with. */
  get lastEventId() {
    return this.#lastId;
  }

  /**
   * Takes the next bytes and returns the events that became complete.
   * @param {Uint8Array} bytes
   * @returns {RawEvent[]}
   * @throws {RangeError} when a line grows beyond MAX_LINE
   */
  push(bytes) {
    /** @type {RawEvent[]} */
    const events = [];
    let text = this.#decoder.decode(bytes, { stream: true });
    if (this.#afterCr && text !== "") {
      this.#afterCr = false;
      if (text.charCodeAt(0) === 10) text = text.slice(1); // the LF of a CRLF that was cut in two
    }
    const all = this.#rest + text;
    let start = 0;
    for (let i = this.#scanned; i < all.length; i += 1) {
      const code = all.charCodeAt(i);
      if (code !== 10 && code !== 13) continue;
      this.#line(all.slice(start, i), events);
      if (code === 13) {
        if (i + 1 === all.length) this.#afterCr = true;
        else if (all.charCodeAt(i + 1) === 10) i += 1;
      }
      start = i + 1;
    }
    this.#rest = all.slice(start);
    this.#scanned = this.#rest.length;
    if (this.#rest.length > MAX_LINE) throw new RangeError("the event stream sent a line without an end");
    return events;
  }

  /** @param {string} line @param {RawEvent[]} events */
  #line(line, events) {
    if (line === "") return this.#dispatch(events);
    const colon = line.indexOf(":");
    if (colon === 0) {
      this.comments += 1;
      return undefined;
    }
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.charCodeAt(0) === 32) value = value.slice(1);
    if (field === "data") {
      this.#data.push(value);
      this.#size += value.length + 1;
      if (this.#size > MAX_LINE) throw new RangeError("the event stream sent an event without an end");
    }
    if (field === "event") this.#type = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^[0-9]+$/.test(value)) this.retry = Number(value);
    return undefined;
  }

  /** @param {RawEvent[]} events */
  #dispatch(events) {
    this.#lastId = this.#id;
    const type = this.#type || "message";
    const data = this.#data;
    this.#type = "";
    this.#data = [];
    this.#size = 0;
    if (data.length > 0) events.push({ type, data: data.join("\n"), id: this.#id });
  }
}
