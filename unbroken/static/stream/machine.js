// @ts-check
/** @typedef {import("./link.js").Link} Link */

/** Listens to what tells about sleep and network; returns how to stop. @param {Link} link */
export function listenToTheMachine(link) {
  /** @type {any} */
  const scope = globalThis;
  if (typeof scope.addEventListener !== "function") return () => {};
  const wake = () => scope.document?.visibilityState !== "hidden" && link.wake();
  const offline = () => link.offline();
  /** @type {[any, string, () => void][]} */
  const ears = [
    [scope, "online", () => link.wake()],
    [scope, "offline", offline],
    [scope, "pageshow", wake],
    [scope.document, "visibilitychange", wake],
    [scope.document, "resume", wake],
  ];
  for (const [target, name, ear] of ears) target?.addEventListener(name, ear);
  return () => ears.forEach(([target, name, ear]) => target?.removeEventListener(name, ear));
}
