// @ts-check
/**
 * Addresses after the `#`, so that any static file server can serve the page.
 *
 * @typedef {{name: "inbox" | "new" | "task" | "dead-letters", id: string | null}} Route
 */

/** @param {string} hash @returns {Route} */
export function parse(hash) {
  const [first, second] = hash.replace(/^#\/?/, "").split("/").map(decode);
  if (first === "tasks" && second) return { name: "task", id: second };
  if (first === "new") return { name: "new", id: null };
  if (first === "dead-letters") return { name: "dead-letters", id: second || null };
  return { name: "inbox", id: null };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @param {string} id */
export const taskHref = (id) => `#/tasks/${encodeURIComponent(id)}`;

/** @param {string} group */
export const groupHref = (group) => `#/dead-letters/${encodeURIComponent(group)}`;

/** @param {(route: Route) => void} show */
export function listen(show) {
  const go = () => show(parse(location.hash));
  window.addEventListener("hashchange", go);
  document.addEventListener("click", ({ target }) => {
    const link = target instanceof Element && target.closest("a[href^='#/']");
    if (link && link.getAttribute("href") === location.hash) go(); // to where one is: no address changes, but somebody asked
  });
  go();
}
