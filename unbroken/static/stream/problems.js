// @ts-check
/**
 * What went wrong, in words that a person can act on.
 *
 * @typedef {{status: number, code: string, message: string, fields?: {field: string, message: string}[],
 *   incident?: string}} Problem  `incident`: of a fault of the server, under which its log has more
 */

/** @type {Record<number, [string, string]>} */
const WORDS = {
  401: ["sign-in", "You are not signed in, or your sign-in has ended. Sign in again to go on."],
  403: ["forbidden", "This key may not do that."],
  404: ["not-found", "There is no such task here. Check the address, or ask who sent it to you."],
  410: ["gone", "This task was kept for its time and has been removed."],
  413: ["too-large", "That is too much at once. Make the input smaller."],
  429: ["busy", "Too many requests just now. It goes on by itself in a moment."],
  502: ["unavailable", "The server is being restarted or cannot be reached. It goes on by itself."],
  503: ["unavailable", "The server is not ready just now. It goes on by itself."],
  504: ["unavailable", "The server took too long to answer. It goes on by itself."],
};

/** Answers that another try would not change. @param {Response} response */
export function isFinal(response) {
  const { status } = response;
  return status >= 400 && status < 500 && status !== 408 && status !== 425 && status !== 429;
}

/** Longest wait that a server may ask for. A wrong clock or a typing error of a proxy must not silence a page for good. */
export const ASKED_MAX_MS = 300_000;

/**
 * How long an answer asks to stay away, in ms: `Retry-After` in seconds or as a date, which is compared with the
 * server's own clock where it tells it. 0 when it asks for nothing, at most ASKED_MAX_MS.
 * @param {Headers} headers @param {number} [now] ms since 1970 by the local clock
 */
export function retryAfterMs(headers, now = Date.now()) {
  const asked = headers.get("Retry-After")?.trim() ?? "";
  if (/^\d+$/.test(asked)) return Math.min(1_000 * Number(asked), ASKED_MAX_MS);
  const until = Date.parse(asked);
  if (Number.isNaN(until)) return 0;
  const there = Date.parse(headers.get("Date") ?? "");
  return Math.min(Math.max(until - (Number.isNaN(there) ? now : there), 0), ASKED_MAX_MS);
}

/** Reads a refusal: the server's own words (RFC 9457) where it sent some. @param {Response} response
 * @returns {Promise<Problem>} */
export async function explain(response) {
  const { status } = response;
  const [code, words] = WORDS[status] ?? ["refused", `The server answered with status ${status}.`];
  /** @type {any} */
  let body = null;
  if (/json/.test(response.headers.get("Content-Type") ?? "")) body = await response.json().catch(() => null);
  const said = typeof body?.detail === "string" && body.detail !== "" ? body.detail : null;
  // What to do about a lost sign-in is known better here; everything else the server explains.
  const told = said !== null && status !== 401 ? said : words;
  const incident = /^[\w-]{1,64}$/.test(body?.incident ?? "") ? String(body.incident) : null;
  const message = incident === null ? told : `${told} Incident ${incident}.`;
  const errors = Array.isArray(body?.errors) ? body.errors : [];
  return { status, code, message, fields: errors.map(fieldOf), ...(incident !== null && { incident }) };
}

/** @param {any} error */
function fieldOf(error) {
  const place = error?.field ?? error?.pointer ?? error?.loc ?? "";
  return {
    field: Array.isArray(place) ? place.join(".") : String(place),
    message: String(error?.message ?? error?.detail ?? error?.msg ?? ""),
  };
}

/** Something on the way answered in the server's place, with 200: a sign-in page of a hotel or of a proxy.
 * @param {Response} response @returns {Problem} */
export function notAStream(response) {
  const where = response.redirected ? ` (sent on to ${response.url})` : "";
  const message = `Something on the way answers instead of the server${where}: a page to sign in, perhaps.`;
  return { status: response.status, code: "not-a-stream", message };
}

/** @param {unknown} error @returns {Problem} */
export function networkProblem(error) {
  const said = error instanceof RangeError ? ` (${error.message})` : "";
  return { status: 0, code: "network", message: `The server cannot be reached${said}. It goes on by itself.` };
}

/** A refused call. Its `message` is for people. */
export class ApiError extends Error {
  /** @param {Problem} problem */
  constructor(problem) {
    super(problem.message);
    this.name = "ApiError";
    this.problem = problem;
    /** The status of the HTTP answer; 0 when there was none. */
    this.status = problem.status;
    /** A word for programs: sign-in, not-found, gone, busy, unavailable, network, refused ... */
    this.code = problem.code;
    /** Which fields of a body were wrong, and how. */
    this.fields = problem.fields ?? [];
  }
}
