// @ts-check
/**
 * One connection to an event stream that is kept alive: it opens, reads, notices silence, waits, and opens again with
 * the id of the last event, until the server says that there is nothing more.
 *
 * Why fetch and not EventSource: EventSource gives up for ever at the first 502 of a deployment, never tells the
 * status, cannot be told that the line is silent, hides heartbeats, cannot send an Authorization header, and exists
 * neither in a service worker nor in node. What it does well (the parsing, the cursor) is little code.
 *
 * @typedef {"idle"|"connecting"|"live"|"caught-up"|"reconnecting"|"offline"|"ended"} Phase
 *   live: events are coming; caught-up: connected, everything the server has is here, nothing new for a second;
 *   reconnecting: waits until `retryAt`; offline: the same, and the browser says that there is no network
 *
 * @typedef {import("./breaks.js").Reconnect} Reconnect
 *
 * @typedef {object} LinkStatus
 * @property {Phase} phase
 * @property {number | null} retryAt   when the next try begins, ms since 1970 by the local clock
 * @property {number} reconnects       breaks that healed
 * @property {number} replayed         events replayed by them
 * @property {Reconnect | null} last
 * @property {Problem | null} error    why it ended, or what the newest try met
 *
 * @typedef {{status: number, code: string, message: string}} Problem
 *
 * @typedef {object} LinkOptions
 * @property {() => string} url
 * @property {(events: import("./sse.js").RawEvent[]) => void} onEvents
 * @property {(status: LinkStatus) => void} [onStatus]
 * @property {typeof fetch} [fetch]
 * @property {Record<string, string> | (() => Record<string, string>)} [headers]   Authorization, for example
 * @property {number} [silenceMs]   no byte for so long means that the line is dead; the server says something every 15 s
 * @property {number} [retryMs]     wait before a reconnect until the server names its own
 * @property {number} [maxDelayMs]  most that is added to it
 * @property {() => number} [random]
 */

import { Breaks } from "./breaks.js";
import { timerMs, unlessAborted } from "./machine.js";
import { ASKED_MAX_MS, explain, isFinal, networkProblem, retryAfterMs } from "./problems.js";
import { SseParser } from "./sse.js";

const RETRY_MS = 1_000;
const OPEN_MS = 20_000; // for the answer's headers to come
const CAUGHT_UP_MS = 1_000;
const STABLE_MS = 5_000; // a connection that lived so long starts the backoff afresh
const SLEPT_MS = 20_000; // after a wake-up, a line that has been silent for longer than a heartbeat is not trusted
const OFFLINE_MS = 5_000;
const AT_ONCE = new Set(["changed", "woken", "missed"]); // breaks of our own making need no politeness, the first time

export class Link {
  /** @type {LinkOptions} */ #options;
  /** @type {AbortController | null} */ #open = null;
  /** @type {(() => void) | null} */ #cutWait = null;
  #generation = 0; // of the loop: a stopped one that still unwinds must not go on when a new one has begun
  #running = false;
  #cursor = "";
  #retry;
  #attempt = 0;
  #lastByte = 0;
  #why = "";
  #breaks = new Breaks();
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #quiet;
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #silence;

  /** @type {LinkStatus} */
  status = { phase: "idle", retryAt: null, reconnects: 0, replayed: 0, last: null, error: null };

  /** @param {LinkOptions} options */
  constructor(options) {
    this.#options = options;
    this.#retry = options.retryMs ?? RETRY_MS;
  }

  /** The id of the last event. */
  get cursor() {
    return this.#cursor;
  }

  /** Whether it is trying, at least. */
  get running() {
    return this.#running;
  }

  /** Whether what comes just now is the past, sent again. */
  get replaying() {
    return this.#breaks.replaying;
  }

  /** Begins, or begins again after the end. @param {string} [cursor] "" = from the start */
  start(cursor = this.#cursor) {
    if (this.#running) return;
    this.#cursor = cursor;
    this.#running = true;
    this.#attempt = 0;
    this.#breaks.forget();
    this.#generation += 1;
    void this.#run(this.#generation);
  }

  /** Ends it for good. */
  stop() {
    this.#running = false;
    this.#generation += 1;
    this.#abort("stopped");
    this.#open = null;
    this.#cutWait?.();
    clearTimeout(this.#quiet);
    clearTimeout(this.#silence);
    this.#settle();
    this.#say({ phase: "idle", retryAt: null });
  }

  /** Ends it because there is nothing more to come, or nothing more to hope for. @param {Problem | null} [error] */
  finish(error = null) {
    this.stop();
    this.#say({ phase: "ended", error });
  }

  /** Cuts the line on purpose, as a lost network would: it comes back by itself. */
  drop() {
    this.#abort("dropped");
  }

  /** Opens again at once: another address, or from another place. @param {string} why @param {string} [cursor] */
  reopen(why, cursor = this.#cursor) {
    if (!this.#running) return this.start(cursor);
    this.#cursor = cursor;
    if (this.#open) this.#abort(why);
    else this.#cutWait?.();
    return undefined;
  }

  /** Tells that the page woke up or that the network is back. */
  wake() {
    this.#cutWait?.();
    if (Date.now() - this.#lastByte > SLEPT_MS) this.#abort("woken");
  }

  /** Tells that the browser thinks it has no network. It may be wrong (a server on this machine), so the line is only
   * watched more closely: with nothing heard it is opened anew. */
  offline() {
    if (this.#open) this.#watch(Math.min(OFFLINE_MS, this.#silenceMs));
  }

  get #silenceMs() {
    return this.#options.silenceMs ?? 35_000;
  }

  /** @param {string} why */
  #abort(why) {
    if (this.#open === null || this.#open.signal.aborted) return;
    this.#why = why;
    this.#open.abort();
  }

  /** @param {number} generation */
  async #run(generation) {
    const mine = () => generation === this.#generation;
    this.#say({ phase: "connecting", retryAt: null, error: null });
    while (mine()) {
      const outcome = await this.#once(mine);
      if (!mine()) return;
      clearTimeout(this.#quiet);
      this.#settle(); // what a short connection brought counts too
      if (outcome.final) {
        this.#running = false;
        this.#say({ phase: "ended", retryAt: null, error: outcome.problem });
        return;
      }
      if (this.#why !== "changed") this.#breaks.lost(this.#why);
      await this.#wait(outcome);
    }
  }

  /** @param {() => boolean} mine @returns {Promise<{final: boolean, problem: Problem | null, afterMs?: number}>} */
  async #once(mine) {
    const open = new AbortController();
    const opened = Date.now();
    this.#open = open;
    this.#why = "";
    this.#watch(OPEN_MS);
    try {
      const response = await unlessAborted(open.signal, this.#request(open.signal));
      if (!mine() || response.status === 204) return { final: true, problem: null };
      if (!response.ok || !response.body || !isEventStream(response)) return await unlessAborted(open.signal, this.#refused(response));
      this.#opened();
      await this.#read(response.body, open.signal);
      this.#why ||= "closed";
      return { final: false, problem: null };
    } catch (error) {
      this.#why ||= "network";
      return { final: false, problem: open.signal.aborted ? null : networkProblem(error) };
    } finally {
      open.abort(); // a body that is not read to its end would hold one of the browser's six connections
      if (mine()) {
        this.#open = null;
        clearTimeout(this.#silence);
        if (Date.now() - opened > STABLE_MS) this.#attempt = 0;
      }
    }
  }

  /** @param {AbortSignal} signal */
  #request(signal) {
    const { headers = {}, url } = this.#options;
    /** @type {Record<string, string>} */
    const all = { Accept: "text/event-stream", ...(typeof headers === "function" ? headers() : headers) };
    if (this.#cursor !== "") all["Last-Event-ID"] = this.#cursor;
    const send = this.#options.fetch ?? globalThis.fetch;
    return send(url(), {
      headers: all,
      cache: "no-store",
      credentials: "same-origin",
      signal,
    });
  }

  /** @param {Response} response */
  async #refused(response) {
    const problem = await explain(response);
    this.#why ||= `http-${response.status}`;
    if (response.status === 400 && this.#cursor !== "") {
      this.#cursor = ""; // the server does not know our place any more: the whole text is the safe answer
      return { final: false, problem };
    }
    return { final: isFinal(response), problem, afterMs: retryAfterMs(response.headers) };
  }

  #opened() {
    this.#breaks.opened(this.#cursor);
    this.#heard();
    this.#busy();
  }

  /** Until the server closes. @param {ReadableStream<Uint8Array>} body @param {AbortSignal} signal */
  async #read(body, signal) {
    const parser = new SseParser(this.#cursor);
    const reader = body.getReader();
    try {
      while (!signal.aborted) { // whoever was told of events may have given up this very line
        const before = Date.now();
        const { done, value } = await unlessAborted(signal, reader.read());
        if (done || signal.aborted) return; // bytes of a line that was given up belong to nobody
        if (this.#breaks.isNews(Date.now() - before, value.length)) this.#settle();
        this.#take(parser, value);
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  /** @param {SseParser} parser @param {Uint8Array} bytes */
  #take(parser, bytes) {
    const events = parser.push(bytes);
    if (parser.retry !== null) this.#retry = Math.min(parser.retry, ASKED_MAX_MS);
    this.#heard();
    if (events.length === 0) return;
    this.#busy();
    this.#cursor = parser.lastEventId;
    this.#breaks.count(events.length);
    this.#options.onEvents(events);
  }

  /** Bytes came: the line is alive. */
  #heard() {
    this.#lastByte = Date.now();
    this.#watch(this.#silenceMs);
  }

  /** Events came: not caught up until a second passes without any. */
  #busy() {
    if (this.status.phase !== "live") this.#say({ phase: "live", retryAt: null, error: null });
    clearTimeout(this.#quiet);
    this.#quiet = setTimeout(() => {
      this.#settle();
      this.#say({ phase: "caught-up" });
    }, CAUGHT_UP_MS);
  }

  /** The replay is over: what the break cost is told. */
  #settle() {
    const last = this.#breaks.settle(this.#cursor);
    if (last === null) return;
    const { reconnects, replayed } = this.status;
    this.#say({ reconnects: reconnects + 1, replayed: replayed + (last.events ?? last.frames), last });
  }

  /** @param {{problem: Problem | null, afterMs?: number}} outcome */
  async #wait({ problem, afterMs = 0 }) {
    const { maxDelayMs = 30_000, random = Math.random } = this.#options;
    if (this.#why === "changed" || (this.#attempt === 0 && AT_ONCE.has(this.#why))) {
      if (this.#why !== "changed") this.#attempt = 1;
      return;
    }
    // Full jitter on top of the server's own (already spread) wish: many viewers must not come back as one wave.
    const spread = random() * Math.min(maxDelayMs, 500 * 2 ** this.#attempt);
    const delay = timerMs(Math.max(afterMs, this.#retry) + spread);
    this.#attempt = Math.min(this.#attempt + 1, 16);
    const phase = globalThis.navigator?.onLine === false ? "offline" : "reconnecting";
    this.#say({ phase, retryAt: Date.now() + delay, error: problem });
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, delay);
      this.#cutWait = () => {
        clearTimeout(timer);
        resolve(undefined);
      };
    });
    this.#cutWait = null;
  }

  /** @param {number} ms without a byte, after which the line is given up */
  #watch(ms) {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#abort("silence"), timerMs(ms));
  }

  /** @param {Partial<LinkStatus>} change */
  #say(change) {
    this.status = { ...this.status, ...change };
    this.#options.onStatus?.(this.status);
  }
}

/** @param {Response} response */
function isEventStream(response) {
  return (response.headers.get("Content-Type") ?? "").startsWith("text/event-stream");
}
