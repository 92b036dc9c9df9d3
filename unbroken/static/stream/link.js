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
 * @typedef {"end" | "again" | "later"} Verdict   again: at once, something else is asked for; later: as after an outage
 *
 * @typedef {{final: boolean, problem: Problem | null, why: string, afterMs?: number}} Outcome   of one connection
 *
 * @typedef {object} LinkOptions
 * @property {() => string} url
 * @property {(events: import("./sse.js").RawEvent[]) => void} onEvents
 * @property {(status: LinkStatus) => void} [onStatus]
 * @property {(problem: Problem | null, signal: AbortSignal) => Promise<Verdict>} [onLast]   the server says that nothing
 *   more comes (null), or why it will not serve this: is that the end, or is there something else to ask for?
 * @property {typeof fetch} [fetch]
 * @property {Record<string, string> | (() => Record<string, string>)} [headers]   Authorization, for example
 * @property {number} [silenceMs]   no byte for so long means that the line is dead; the server says something every 15 s
 * @property {number} [retryMs]     wait before a reconnect until the server names its own
 * @property {number} [maxDelayMs]  most that is added to it
 * @property {() => number} [random]
 */

import { Breaks } from "./breaks.js";
import { report } from "./emitter.js";
import { timerMs, unlessAborted } from "./machine.js";
import { ASKED_MAX_MS, explain, isFinal, networkProblem, notAStream, retryAfterMs } from "./problems.js";
import { SseParser } from "./sse.js";

const RETRY_MS = 1_000;
const OPEN_MS = 20_000; // for the answer's headers to come
const CAUGHT_UP_MS = 1_000;
const STABLE_MS = 5_000; // a connection that lived so long starts the backoff afresh
const SLEPT_MS = 20_000; // after a wake-up, a line that has been silent for longer than a heartbeat is not trusted
const OFFLINE_MS = 5_000;
const LATE_MS = 50;
const SECOND_LOOK_MS = 1_000;
const AT_ONCE = new Set(["changed", "woken", "missed"]); // breaks of our own making need no politeness, the first time

export class Link {
  /** @type {LinkOptions} */ #options;
  /** The connection of now. @type {{cut: AbortController, heard: number, why: string} | null} */ #line = null;
  /** @type {(() => void) | null} */ #cutWait = null;
  #generation = 0; // of the loop: a stopped one that still unwinds must not go on when a new one has begun
  #running = false;
  #cursor = "";
  #retry;
  #attempt = 0;
  #hurry = false; // somebody wants another connection while there is none
  #awayUntil = 0; // the server asked not to be asked before
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
    this.#hurry = false;
    this.#breaks.forget();
    this.#generation += 1;
    void this.#run(this.#generation);
  }

  /** Ends it for good. */
  stop() {
    this.#say({ ...this.#halt(), phase: "idle", retryAt: null });
  }

  /** Ends it because there is nothing more to come, or nothing more to hope for. @param {Problem | null} [error] */
  finish(error = null) {
    this.#say({ ...this.#halt(), phase: "ended", retryAt: null, error });
  }

  /** Everything stops before anybody is told: who hears of it may begin again. @returns {Partial<LinkStatus>} */
  #halt() {
    this.#running = false;
    this.#generation += 1;
    this.#cut("stopped");
    this.#line = null;
    this.#cutWait?.();
    clearTimeout(this.#quiet);
    clearTimeout(this.#silence);
    return this.#settled();
  }

  /** Cuts the line on purpose, as a lost network would: it comes back by itself. */
  drop() {
    this.#cut("dropped");
  }

  /** Opens again at once: another address, or from another place. @param {string} why @param {string} [cursor] */
  reopen(why, cursor = this.#cursor) {
    if (!this.#running) return this.start(cursor);
    this.#cursor = cursor;
    if (this.#line) {
      this.#line.why = why; // also of one that is being cut for another reason
      this.#line.cut.abort();
    } else {
      this.#hurry = true;
      this.#cutWait?.();
    }
    return undefined;
  }

  /** Tells that the page woke up or that the network is back. Told several times for one wake-up, it does no harm. */
  wake() {
    if (Date.now() >= this.#awayUntil) this.#cutWait?.();
    if (this.#line && Date.now() - this.#line.heard > SLEPT_MS) this.#cut("woken");
  }

  /** Tells that the browser thinks it has no network. It may be wrong (a server on this machine), so the line is only
   * watched more closely: with nothing heard it is opened anew. */
  offline() {
    if (this.#line) this.#watch(Math.min(OFFLINE_MS, this.#silenceMs));
  }

  get #silenceMs() {
    return this.#options.silenceMs ?? 35_000;
  }

  /** @param {string} why */
  #cut(why) {
    if (this.#line === null || this.#line.cut.signal.aborted) return;
    this.#line.why = why;
    this.#line.cut.abort();
  }

  /** @param {number} generation */
  async #run(generation) {
    const mine = () => generation === this.#generation;
    this.#say({ phase: "connecting", retryAt: null, error: null });
    while (mine()) {
      const outcome = await this.#once();
      if (!mine()) return;
      clearTimeout(this.#quiet);
      if (outcome.final) {
        this.#running = false;
        this.#say({ ...this.#settled(), phase: "ended", retryAt: null, error: outcome.problem });
        return;
      }
      this.#settle(); // what a short connection brought counts too
      if (!mine()) return;
      if (outcome.why !== "changed") this.#breaks.lost(outcome.why);
      await this.#wait(outcome);
    }
  }

  /** One connection, from its request to its end. @returns {Promise<Outcome>} */
  async #once() {
    const line = { cut: new AbortController(), heard: Date.now(), why: "" };
    const { signal } = line.cut;
    const opened = line.heard;
    this.#line = line;
    this.#watch(OPEN_MS);
    try {
      const response = await unlessAborted(signal, this.#request(signal));
      signal.throwIfAborted(); // between the answer and this line
      if (response.status === 204) return await unlessAborted(signal, this.#last(null, "closed", signal));
      if (!response.ok || !response.body || !isEventStream(response)) {
        return await unlessAborted(signal, this.#refused(response, signal));
      }
      this.#opened();
      await this.#read(response.body, signal);
      return { final: false, problem: null, why: line.why || "closed" };
    } catch (error) {
      const problem = signal.aborted ? null : networkProblem(error);
      return { final: false, problem, why: line.why || "network" };
    } finally {
      line.cut.abort(); // a body that is not read to its end would hold one of the browser's six connections
      if (this.#line === line) {
        this.#line = null;
        clearTimeout(this.#silence);
        if (Date.now() - opened > STABLE_MS) this.#attempt = 0;
      }
    }
  }

  /** @param {AbortSignal} signal @returns {Promise<Response>} */
  async #request(signal) {
    const { headers = {}, url } = this.#options;
    /** @type {Record<string, string>} */
    const all = { Accept: "text/event-stream", ...(typeof headers === "function" ? headers() : headers) };
    if (this.#cursor !== "") all["Last-Event-ID"] = this.#cursor;
    const send = this.#options.fetch ?? globalThis.fetch;
    const response = await send(url(), {
      headers: all,
      cache: "no-store",
      credentials: "same-origin",
      signal,
    });
    if (signal.aborted) response.body?.cancel().catch(() => {}); // too late: nobody waits for it any more
    return response;
  }

  /** @param {Response} response @param {AbortSignal} signal @returns {Promise<Outcome>} */
  async #refused(response, signal) {
    const problem = response.ok ? notAStream(response) : await explain(response);
    const why = response.ok ? "not-a-stream" : `http-${response.status}`;
    signal.throwIfAborted(); // a newer connection has its own cursor
    if (response.status === 400 && this.#cursor !== "") {
      this.#cursor = ""; // the server does not know our place any more: the whole text is the safe answer
      return { final: false, problem, why };
    }
    if (isFinal(response)) return this.#last(problem, why, signal);
    return { final: false, problem, why, afterMs: retryAfterMs(response.headers) };
  }

  /** @param {Problem | null} problem @param {string} why @param {AbortSignal} signal @returns {Promise<Outcome>} */
  async #last(problem, why, signal) {
    const verdict = (await this.#options.onLast?.(problem, signal)) ?? "end";
    return { final: verdict === "end", problem, why: verdict === "again" ? "changed" : why };
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
    safely(() => this.#options.onEvents(events));
  }

  /** Bytes came: the line is alive. */
  #heard() {
    if (this.#line) this.#line.heard = Date.now();
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
    const change = this.#settled();
    if (change.last) this.#say(change);
  }

  /** @returns {Partial<LinkStatus>} */
  #settled() {
    const last = this.#breaks.settle(this.#cursor);
    if (last === null) return {};
    const { reconnects, replayed } = this.status;
    return { reconnects: reconnects + 1, replayed: replayed + (last.events ?? last.frames), last };
  }

  /** @param {Outcome} outcome */
  async #wait({ why, problem, afterMs = 0 }) {
    const { maxDelayMs = 30_000, random = Math.random } = this.#options;
    const hurry = this.#hurry || why === "changed";
    this.#hurry = false;
    if (hurry) return;
    if (this.#attempt === 0 && AT_ONCE.has(why)) {
      this.#attempt = 1;
      return;
    }
    // Full jitter on top of the server's own (already spread) wish: many viewers must not come back as one wave.
    const spread = random() * Math.min(maxDelayMs, 500 * 2 ** this.#attempt) || 0;
    const delay = timerMs(Math.max(afterMs, this.#retry) + spread);
    this.#attempt = Math.min(this.#attempt + 1, 16);
    this.#awayUntil = Date.now() + afterMs;
    const over = new Promise((resolve) => {
      const cut = () => {
        clearTimeout(timer);
        if (this.#cutWait === cut) this.#cutWait = null;
        resolve(undefined);
      };
      const timer = setTimeout(cut, delay);
      this.#cutWait = cut; // before it is told: whoever hears of the wait may cut it short, or stop
    });
    const phase = globalThis.navigator?.onLine === false ? "offline" : "reconnecting";
    this.#say({ phase, retryAt: Date.now() + delay, error: problem });
    await over;
    this.#hurry = false;
  }

  /** @param {number} ms without a byte, after which the line is given up */
  #watch(ms) {
    clearTimeout(this.#silence);
    const due = Date.now() + ms;
    this.#silence = setTimeout(() => {
      // A timer this late tells that the page was frozen or starved: what came meanwhile is read before it is judged.
      if (Date.now() - due > LATE_MS) this.#watch(Math.min(ms, SECOND_LOOK_MS));
      else this.#cut("silence");
    }, timerMs(ms));
  }

  /** @param {Partial<LinkStatus>} change */
  #say(change) {
    this.status = { ...this.status, ...change };
    safely(() => this.#options.onStatus?.(this.status));
  }
}

/** A fault of whoever listens is told, and is not taken for one of the line. @param {() => void} call */
function safely(call) {
  try {
    call();
  } catch (error) {
    report(error);
  }
}

/** @param {Response} response */
function isEventStream(response) {
  return /^\s*text\/event-stream\s*(;|$)/i.test(response.headers.get("Content-Type") ?? "");
}
