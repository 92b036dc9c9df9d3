// @ts-check
/** What the machine below does to a connection: it sleeps, loses its network, keeps promises, counts time in 32 bits. */

/** @typedef {import("./link.js").Link} Link */

/** Longest time that a timer takes (2^31 - 1 ms): beyond it, browsers and node fire at once, and a wait becomes a storm. */
const TIMER_MAX_MS = 2_147_483_647;

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

/**
 * What a promise comes to, or the abort, whichever is first. Needed although fetch knows signals: under node 20 (undici)
 * a read that begins between the last byte and the end of an aborted answer never settles, and an agent of the
 * caller's own may not know signals at all.
 * @template T
 * @param {AbortSignal} signal @param {Promise<T>} promise @returns {Promise<T>}
 */
export function unlessAborted(signal, promise) {
  return new Promise((resolve, reject) => {
    const giveUp = () => reject(signal.reason);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", giveUp));
    if (signal.aborted) giveUp();
    else signal.addEventListener("abort", giveUp, { once: true });
  });
}

/** A time that a timer can take. @param {number} ms @returns {number} */
export function timerMs(ms) {
  return Math.min(Math.max(ms, 0), TIMER_MAX_MS);
}
