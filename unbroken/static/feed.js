// @ts-check
/**
 * The page's door to live tasks: `watch(id, ears)`. One connection for all tabs by SharedWorker where the browser has
 * it, one for this page where not.
 *
 * @typedef {import("./stream.js").TaskView} TaskView
 * @typedef {object} Watcher
 * @property {(view: TaskView, events: import("./stream.js").TaskEvent[], replaying: boolean) => void} change
 * @property {(status: import("./stream.js").LinkStatus) => void} connection
 * @property {(problem: import("./stream.js").Problem) => void} refused
 */

import { onSignInNeeded } from "./api.js";
import { FeedCore } from "./feed-core.js";
import { INITIAL, fold } from "./stream.js";

const HELLO_MS = 3_000;
const PING_MS = 20_000;

/** @type {Map<string, {view: TaskView, watchers: Set<Watcher>}>} */
const watched = new Map();
/** @type {import("./stream.js").LinkStatus | null} */
let connection = null;

/** @type {import("./feed-core.js").Ear} */
const ear = {
  // A feed that has forgotten this task begins at nothing; what is shown stays until the replay is folded over it.
  snapshot: (id, view) => put(id, view.lastEventId === "" ? (watched.get(id)?.view ?? view) : view, [], true),
  events: (id, events, replaying) => put(id, events.reduce(fold, watched.get(id)?.view ?? INITIAL), events, replaying),
  refused: (id, problem) => {
    if (problem.status === 401) onSignInNeeded.forEach((hear) => hear());
    else watched.get(id)?.watchers.forEach((watcher) => watcher.refused(problem));
  },
  connection: (status) => {
    connection = status;
    for (const { watchers } of watched.values()) watchers.forEach((watcher) => watcher.connection(status));
  },
};

/** @param {string} id @param {TaskView} view @param {import("./stream.js").TaskEvent[]} events @param {boolean} replaying */
function put(id, view, events, replaying) {
  const entry = watched.get(id);
  if (entry === undefined) return;
  entry.view = view;
  entry.watchers.forEach((watcher) => watcher.change(view, events, replaying));
}

/** What a feed is asked for: the worker's port, or the core itself. @type {(message: any) => void} */
let ask = connectWorker() ?? connectHere();

/** @returns {((message: any) => void) | null} */
function connectWorker() {
  if (typeof SharedWorker !== "function") return null;
  let worker;
  try {
    worker = new SharedWorker("/static/feed-worker.js", { type: "module", name: "unbroken-feed-1" });
  } catch {
    return null;
  }
  const { port } = worker;
  const giveUp = () => {
    clearTimeout(patience);
    port.close();
    ask = connectHere();
    for (const id of watched.keys()) ask({ type: "watch", id });
  };
  const patience = setTimeout(giveUp, HELLO_MS);
  worker.onerror = giveUp;
  port.onmessage = ({ data }) => {
    clearTimeout(patience);
    if (data.type === "snapshot") ear.snapshot(data.id, data.view);
    else if (data.type === "events") ear.events(data.id, data.events, data.replaying);
    else if (data.type === "refused") ear.refused(data.id, data.problem);
    else if (data.type === "connection") ear.connection(data.status);
  };
  return (message) => port.postMessage(message);
}

/** @returns {(message: any) => void} */
function connectHere() {
  const core = new FeedCore();
  return (message) => {
    if (message.type === "watch") core.watch(message.id, ear);
    else if (message.type === "unwatch") core.unwatch(message.id, ear);
    else if (message.type === "bye") core.leave(ear);
    else if (message.type === "drop") core.drop();
    else if (message.type === "resume") core.resume();
    else if (message.type === "wake") core.wake();
    else if (message.type === "offline") core.offline();
  };
}

/** Everything anew: this tab was asleep, and the worker may have let it go. */
function hello() {
  for (const id of watched.keys()) ask({ type: "watch", id });
  ask({ type: "wake" });
}

window.addEventListener("pagehide", () => ask({ type: "bye" }));
window.addEventListener("pageshow", (event) => event.persisted && hello());
window.addEventListener("online", () => ask({ type: "wake" }));
window.addEventListener("offline", () => ask({ type: "offline" }));
document.addEventListener("resume", hello);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && hello());
setInterval(() => watched.size > 0 && ask({ type: "ping" }), PING_MS);

/**
 * Watches a task. What is known comes at once or soon, then every change.
 * @param {string} id @param {Watcher} watcher
 * @returns {() => void} how to stop
 */
export function watch(id, watcher) {
  const entry = watched.get(id);
  if (entry) {
    entry.watchers.add(watcher);
    watcher.change(entry.view, [], true);
    if (connection) watcher.connection(connection);
  } else {
    watched.set(id, { view: INITIAL, watchers: new Set([watcher]) });
    ask({ type: "watch", id });
  }
  return () => {
    const now = watched.get(id);
    now?.watchers.delete(watcher);
    if (now?.watchers.size !== 0) return;
    watched.delete(id);
    ask({ type: "unwatch", id });
  };
}

/** Cuts the connection on purpose, so that everyone can see it heal. */
export function drop() {
  ask({ type: "drop" });
}

/** Opens again after an end: somebody signed in, or a dead letter lives again. */
export function resume() {
  ask({ type: "resume" });
}
