// @ts-check
/**
 * What this browser remembers: the tasks it has seen, with a title (a task object never holds its input's text), and
 * a few choices. Text and cursors need not be kept, since replay is exact. Works without storage, too.
 *
 * @typedef {{id: string, title: string, steps?: string[], seen: number}} Remembered
 */

const KEY = "unbroken.recent";
const SIGNED_OUT = "unbroken.signed-out";
const MOST = 100;

/** @param {string} key @param {any} otherwise */
export function recall(key, otherwise) {
  try {
    const kept = localStorage.getItem(key);
    return kept === null ? otherwise : JSON.parse(kept);
  } catch {
    return otherwise;
  }
}

/** @param {string} key @param {unknown} value */
export function keep(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // private mode or a full store: the page works without
  }
}

/** @returns {Remembered[]} newest first */
export function recentTasks() {
  const list = recall(KEY, []);
  return Array.isArray(list) ? list.filter((entry) => typeof entry?.id === "string") : [];
}

/** @param {string} id @param {{title?: string, steps?: string[]}} [more] */
export function remember(id, more = {}) {
  const list = recentTasks();
  const before = list.find((entry) => entry.id === id);
  const entry = { title: "", ...before, ...more, id, seen: Date.now() };
  keep(KEY, [entry, ...list.filter((other) => other.id !== id)].slice(0, MOST));
}

/** @param {string} id */
export function forget(id) {
  keep(KEY, recentTasks().filter((entry) => entry.id !== id));
}

/** Somebody signed out: the next person at this browser is not told what was asked here. */
export function forgetEverything() {
  try {
    for (const store of [localStorage, sessionStorage]) {
      for (const key of Object.keys(store)) if (key.startsWith("unbroken.")) store.removeItem(key);
    }
  } catch {
    // no storage, nothing kept
  }
}

/** Tells this browser's other tabs. Through the storage: an open BroadcastChannel keeps a page out of the back/forward
 * cache. */
export function tellSignOut() {
  keep(SIGNED_OUT, Date.now());
  forgetEverything();
}

/** @param {() => void} hear  called when somebody signed out in another tab */
export function onSignOutElsewhere(hear) {
  window.addEventListener("storage", ({ key, newValue }) => key === SIGNED_OUT && newValue !== null && hear());
}

/** @param {string} id @returns {Remembered | null} */
export function remembered(id) {
  return recentTasks().find((entry) => entry.id === id) ?? null;
}

/** The story so far is kept for this tab: a replay may leave out what is superseded. @param {string} id */
export function recallStory(id) {
  try {
    const list = JSON.parse(sessionStorage.getItem(`unbroken.story.${id}`) ?? "[]");
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}

/** @param {string} id @param {readonly import("./history.js").Entry[]} story */
export function keepStory(id, story) {
  try {
    sessionStorage.setItem(`unbroken.story.${id}`, JSON.stringify(story));
  } catch {
    // a full store: the story is only shorter after a reload
  }
}
