// @ts-check
/**
 * Calls of the HTTP API. Refusals become ApiError with words for people; a 401 also wakes the sign-in.
 *
 * @typedef {Record<string, any>} Task
 * @typedef {{items: Task[], next_cursor: string | null}} Page
 */

import { ApiError, explain } from "./stream.js";

const TRIES = 4;

/** Runs when an answer was 401. @type {Set<() => void>} */
export const onSignInNeeded = new Set();

let skewMs = 0;

/** Now by the server's clock, to a second: this machine's may be wrong by minutes. */
export function serverNow() {
  return Date.now() + (Math.abs(skewMs) > 2_000 ? skewMs : 0);
}

/** A key for one intention, so that sending it again never does it twice. randomUUID needs HTTPS; this does not. */
export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @param {string} method @param {string} path
 * @param {{body?: unknown, key?: string, headers?: Record<string, string>, signal?: AbortSignal, accept?: string}} [how]
 * @returns {Promise<Response>}
 */
async function send(method, path, { body, key, headers = {}, signal, accept = "application/json" } = {}) {
  /** @type {Record<string, string>} */
  const all = { Accept: accept, ...headers };
  if (body !== undefined) all["Content-Type"] = "application/json";
  if (key !== undefined) all["Idempotency-Key"] = key;
  const response = await fetch(path, {
    method, headers: all, signal, credentials: "same-origin", cache: "no-store",
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch((error) => {
    if (error?.name === "AbortError") throw error;
    throw new ApiError({ status: 0, code: "network", message: "The server cannot be reached. Try again in a moment." });
  });
  const date = Date.parse(response.headers.get("Date") ?? "");
  if (Number.isFinite(date)) skewMs = date - Date.now();
  if (response.ok || response.status === 304) return response;
  if (response.status === 401 && path !== "/api/session") onSignInNeeded.forEach((ear) => ear());
  throw new ApiError(await explain(response));
}

/** A call that may be lost on the way and is sent again under the same key: never twice the effect.
 * @param {string} method @param {string} path @param {unknown} body @param {string} key */
async function sendSurely(method, path, body, key) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await send(method, path, { body, key });
    } catch (error) {
      const status = error instanceof ApiError ? error.status : -1;
      if (attempt === TRIES || ![0, 409, 502, 503, 504].includes(status)) throw error;
      if (status === 409 && !/still/i.test(String(error))) throw error; // only "the first is still running"
      await new Promise((resolve) => setTimeout(resolve, 400 * 2 ** attempt));
    }
  }
}

/** @param {string} id */
const at = (id) => `/api/tasks/${encodeURIComponent(id)}`;

/** @type {Map<string, {etag: string, task: Task}>} */
const known = new Map();

/** @param {string} id @returns {Promise<Task>} */
export async function getTask(id) {
  const before = known.get(id);
  const response = await send("GET", at(id), { headers: before ? { "If-None-Match": before.etag } : {} });
  if (response.status === 304 && before) return before.task;
  const task = await response.json();
  const etag = response.headers.get("ETag");
  if (etag) known.set(id, { etag, task });
  if (known.size > 200) known.delete(/** @type {string} */ (known.keys().next().value));
  return task;
}

/** @param {Record<string, string>} filters @param {string | null} cursor @param {number} limit @returns {Promise<Page>} */
export async function listTasks(filters, cursor = null, limit = 50) {
  const query = new URLSearchParams({ limit: String(limit) });
  for (const [name, value] of Object.entries(filters)) if (value !== "") query.set(name, value);
  if (cursor !== null) query.set("cursor", cursor);
  return (await send("GET", `/api/tasks?${query}`)).json();
}

/** @param {unknown} body @param {string} key @returns {Promise<Task>} */
export async function createTask(body, key) {
  return (await sendSurely("POST", "/api/tasks", body, key)).json();
}

/** @param {string} id @param {"recover" | "pause" | "cancel"} what @param {string} [key] @returns {Promise<any>} */
export async function act(id, what, key = newKey()) {
  return (await sendSurely("POST", `${at(id)}/${what}`, undefined, key)).json();
}

/** @param {string} id */
export async function deleteTask(id) {
  await send("DELETE", at(id));
}

/** The task's changes of state so far, as events. @param {string} id @returns {Promise<{id: string, event: string, data: any}[]>} */
export async function getHistory(id) {
  return (await (await send("GET", `${at(id)}/history`)).json()).items;
}

/** Safe HTML of a part of the text, made by the server. @param {string} id @param {number} from @param {number} to
 * @param {AbortSignal} [signal] */
export async function getRendered(id, from, to, signal) {
  return (await send("GET", `${at(id)}/rendered?from=${from}&to=${to}`, { signal, accept: "text/html" })).text();
}

/** What was asked for. @param {string} id @returns {Promise<any>} */
export async function getInput(id) {
  return (await send("GET", `${at(id)}/input`)).json();
}

/** First words of what was asked for, by task; without those that have none. @param {readonly string[]} ids
 * @returns {Promise<Record<string, string>>} */
export async function getTitles(ids) {
  return (await (await send("GET", `/api/titles?${ids.map((id) => `task=${encodeURIComponent(id)}`).join("&")}`)).json()).titles;
}

/** @param {string} id @returns {Promise<string>} */
export async function getResult(id) {
  return (await send("GET", `${at(id)}/result`, { accept: "*/*" })).text();
}

/** @param {string} [group] @returns {Promise<any>} */
export async function getDeadLetters(group) {
  const query = group === undefined ? "" : `?group=${encodeURIComponent(group)}`;
  return (await send("GET", `/api/dead-letters${query}`)).json();
}

/** @param {{task_ids?: string[], group?: string}} what @returns {Promise<any>} */
export async function replay(what) {
  return (await sendSurely("POST", "/api/dead-letters/replay", what, newKey())).json();
}

/** @returns {Promise<any>} */
export async function getStats() {
  return (await send("GET", "/api/stats")).json();
}

/** @returns {Promise<{owner: string | null, keys_required: boolean}>} */
export async function getSession() {
  return (await send("GET", "/api/session")).json();
}

/** @param {string} key */
export async function signIn(key) {
  await send("POST", "/api/session", { body: { key } });
}

export async function signOut() {
  await send("DELETE", "/api/session");
}

/** Somebody signed out. */
export function forgetTasks() {
  known.clear();
}

/** A first page, and behind it what was loaded of the pages that follow. What newer tasks have pushed off the page is still
 * among them; what lies within it and is not on it any more is gone.
 * @template {{task_id: string, created_at: string}} T @param {T[]} page newest first @param {T[]} known @returns {T[]} */
export function withOlder(page, known) {
  const last = page.at(-1);
  const fresh = new Set(page.map((task) => task.task_id));
  return last ? [...page, ...known.filter((task) => !fresh.has(task.task_id) && task.created_at <= last.created_at)] : page;
}
