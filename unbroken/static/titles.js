// @ts-check
/**
 * What to call a task. A task object never holds its input's text, so that polling stays cheap: titles are asked for
 * once, many at a time, for tasks that this browser did not send itself.
 */

import { getTitles } from "./api.js";
import { remembered } from "./recent.js";

const MOST = 2_000; // titles kept; those of the oldest rows go first
const AT_ONCE = 100; // the address of such a question stays below 8 KiB

/** @type {Map<string, string>} "" = asked for, there is none */
const known = new Map();

/** @param {Record<string, any>} task */
export function titleOf(task) {
  const id = String(task.task_id);
  return remembered(id)?.title || known.get(id) || task.topic || `${task.kind ?? "task"} ${id.slice(-6)}`;
}

/** What the server calls it; "" when that is not known. @param {string} id */
export function learned(id) {
  return known.get(id) ?? "";
}

/**
 * Asks for the titles that are not known. A refusal is nothing: there is always something to call a task by.
 * @param {readonly Record<string, any>[]} tasks @returns {Promise<boolean>} whether there is a new title
 */
export async function learnTitles(tasks) {
  const ids = tasks.map((task) => String(task.task_id)).filter((id) => !known.has(id) && !remembered(id)?.title);
  let news = false;
  for (let from = 0; from < ids.length; from += AT_ONCE) {
    const some = ids.slice(from, from + AT_ONCE);
    const titles = await getTitles(some).catch(() => null);
    if (titles === null) return news; // asked again with the next refresh
    for (const id of some) {
      const title = titles[id];
      known.set(id, typeof title === "string" ? title : "");
      news ||= Boolean(title);
    }
  }
  while (known.size > MOST) known.delete(/** @type {string} */ (known.keys().next().value));
  return news;
}

/** Somebody signed out. */
export function forgetTitles() {
  known.clear();
}
