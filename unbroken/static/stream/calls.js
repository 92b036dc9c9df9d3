// @ts-check
/**
 * Calls: what the caller may have meant (a call that would do nothing is refused with words that help), and what is
 * asked of the server besides the stream.
 *
 * @typedef {import("../stream.js").FollowOptions} FollowOptions
 */

import { unlessAborted } from "./machine.js";
import { ApiError, explain, notAStream } from "./problems.js";

const OPTIONS = ["base", "fetch", "key", "silenceMs", "retryMs", "maxDelayMs", "random", "view"];
const NUMBERS = ["silenceMs", "retryMs", "maxDelayMs"];
const FUNCTIONS = ["fetch", "random"];
const AT_ONCE = 6; // requests; browsers allow six per host
const ACT_MS = 30_000;

/**
 * Options as they are used: an address without a slash at its end, a key without white space around it.
 * @template {Record<string, any>} T
 * @param {T} options @returns {T}
 * @throws {TypeError} for an unknown option, and for a wrong value
 */
export function checked(options) {
  if (options === null || typeof options !== "object") throw new TypeError("the options are an object: { base, key, ... }");
  for (const name of Object.keys(options)) {
    if (OPTIONS.includes(name)) continue;
    const event = /^on[A-Z]/.test(name) ? name[2].toLowerCase() + name.slice(3) : "";
    const instead = event ? `Listen with task.on("${event}", ...).` : `There are: ${OPTIONS.join(", ")}.`;
    throw new TypeError(`there is no option "${name}". ${instead}`);
  }
  for (const name of NUMBERS) {
    const value = options[name];
    if (value !== undefined && !(typeof value === "number" && value >= 0)) {
      throw new TypeError(`${name} is a number of milliseconds, not ${String(value)}`);
    }
  }
  for (const name of FUNCTIONS) {
    if (options[name] !== undefined && typeof options[name] !== "function") throw new TypeError(`${name} is a function`);
  }
  if (options.key !== undefined && !(typeof options.key === "string" && /^[\x21-\x7e]*$/.test(options.key.trim()))) {
    throw new TypeError("key is an API key as it was shown, without spaces");
  }
  if (options.base !== undefined && typeof options.base !== "string") throw new TypeError("base is an address, or \"\"");
  if (/^[^/]*:/.test(options.base ?? "") && !/^https?:\/\//i.test(options.base)) {
    throw new TypeError(`base begins with http:// or https://, not ${options.base}`);
  }
  const { base = "", key } = options;
  return { ...options, base: base.replace(/\/+$/, ""), key: key?.trim() }; // a key read from a file ends in a line end
}

/** @param {unknown} id @returns {string} @throws {TypeError} */
export function checkedId(id) {
  if (typeof id === "string" && id !== "" && id === new TextDecoder().decode(new TextEncoder().encode(id))) return id;
  const hint = id !== null && typeof id === "object" && "task_id" in id ? " (give it task.task_id)" : "";
  throw new TypeError(`a task's id is a text such as "s0-abc"${hint}`);
}

/** @param {readonly string[]} names @param {string} name @param {unknown} ear @throws {TypeError} */
export function checkedEar(names, name, ear) {
  if (!names.includes(name)) throw new TypeError(`there is no event "${name}". There are: ${names.join(", ")}.`);
  if (typeof ear !== "function") throw new TypeError(`on("${name}", ...) needs a function`);
}

/** @param {FollowOptions} options @returns {Record<string, string>} */
export function authorization(options) {
  return options.key ? { Authorization: `Bearer ${options.key}` } : {};
}

/**
 * Which of these tasks are not there, for certain: a server that is away, busy or does not know us says nothing.
 * @param {readonly string[]} ids @param {FollowOptions} options @param {AbortSignal} signal @returns {Promise<string[]>}
 */
export async function missingOf(ids, options, signal) {
  const send = options.fetch ?? globalThis.fetch;
  /** @param {string} id */
  const isMissing = async (id) => {
    try {
      const address = `${options.base ?? ""}/api/tasks/${encodeURIComponent(id)}`;
      const response = await send(address, { headers: authorization(options), cache: "no-store", signal });
      response.body?.cancel().catch(() => {});
      return response.status === 404 || response.status === 410;
    } catch {
      return false;
    }
  };
  /** @type {string[]} */
  const missing = [];
  for (let i = 0; i < ids.length && !signal.aborted; i += AT_ONCE) {
    const some = ids.slice(i, i + AT_ONCE);
    const answers = await Promise.all(some.map(isMissing));
    missing.push(...some.filter((_id, at) => answers[at]));
  }
  return missing;
}

/**
 * Recover, pause or cancel. Each may be repeated without harm.
 * @param {string} taskId @param {string} what @param {FollowOptions} options @returns {Promise<any>}
 * @throws {ApiError} refused; `network` when no answer came, `not-a-stream` when something else answered
 */
export async function act(taskId, what, options) {
  const send = options.fetch ?? globalThis.fetch;
  const address = `${options.base ?? ""}/api/tasks/${encodeURIComponent(taskId)}/${what}`;
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), ACT_MS);
  const { signal } = late;
  const call = async () => {
    const response = await send(address, { method: "POST", headers: authorization(options), signal });
    if (!response.ok) throw new ApiError(await explain(response));
    if (response.status === 204) return null;
    if (!/json/.test(response.headers.get("Content-Type") ?? "")) throw new ApiError(notAStream(response));
    return response.json();
  };
  try {
    return await unlessAborted(signal, call());
  } catch (error) {
    if (error instanceof ApiError) throw error;
    const message = "The server could not be reached, or did not answer. Try again: asking twice does no harm.";
    throw new ApiError({ status: 0, code: "network", message });
  } finally {
    clearTimeout(timer);
  }
}
