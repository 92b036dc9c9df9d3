// @ts-check
/**
 * The SharedWorker: one connection for all tabs, since browsers allow six per host on HTTP/1.1 and eight tabs must
 * all stay live. Each tab folds the events itself; a tab that comes later gets the state once.
 */

import { FeedCore } from "./feed-core.js";

const GONE_MS = 150_000; // hidden tabs may speak only once a minute
const core = new FeedCore();
/** @type {Map<MessagePort, {ear: import("./feed-core.js").Ear, heard: number}>} */
const tabs = new Map();

/** @param {MessagePort} port @returns {import("./feed-core.js").Ear} */
function earOf(port) {
  return {
    snapshot: (id, view) => port.postMessage({ type: "snapshot", id, view }),
    events: (id, events, replaying) => port.postMessage({ type: "events", id, events, replaying }),
    refused: (id, problem) => port.postMessage({ type: "refused", id, problem }),
    connection: (status) => port.postMessage({ type: "connection", status }),
  };
}

/** @param {MessagePort} port */
function leave(port) {
  const tab = tabs.get(port);
  if (tab) core.leave(tab.ear);
  tabs.delete(port);
}

/** @param {MessagePort} port @param {any} message */
function take(port, message) {
  if (message.type === "bye") return leave(port);
  const tab = tabs.get(port) ?? { ear: earOf(port), heard: 0 };
  tabs.set(port, tab);
  tab.heard = Date.now();
  if (message.type === "watch") core.watch(message.id, tab.ear);
  else if (message.type === "unwatch") core.unwatch(message.id, tab.ear);
  else if (message.type === "drop") core.drop();
  else if (message.type === "resume") core.resume();
  else if (message.type === "wake") core.wake();
  else if (message.type === "offline") core.offline();
  return undefined;
}

/** @type {any} */ (globalThis).onconnect = (/** @type {MessageEvent} */ event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => take(port, data);
  port.postMessage({ type: "hello" });
};

setInterval(() => {
  for (const [port, tab] of tabs) if (Date.now() - tab.heard > GONE_MS) leave(port);
}, 30_000);
