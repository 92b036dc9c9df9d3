// Shared by the tests of stream.js: a seeded source of chance, random logs, and a real HTTP server that streams a log.
import { createServer } from "node:http";
import { once } from "node:events";

/** Small seeded generator (mulberry32), so that a failure can be repeated. */
export function chance(seed) {
  let a = seed >>> 0;
  const next = () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = a;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return { next, below: (n) => Math.floor(next() * n), pick: (list) => list[Math.floor(next() * list.length)] };
}

export const POINTS = ["a", "b", " ", "\n", "é", "文", "字", "א", "ب", "👩", "‍", "🚀", "🇩", "🇪", "́", "\\", '"', "<"];

export function randomText(random, most) {
  return Array.from({ length: random.below(most) + 1 }, () => random.pick(POINTS)).join("");
}

/** A believable log: attempts, chunks, rewinds, checkpoints, and an end. Returns the events and the exact text. */
export function randomLog(random, { size = 60, most = 40 } = {}) {
  const events = [];
  let points = [];
  let n = 0;
  let epoch = 1_700_000_000_000;
  const add = (type, data) => events.push({ type, data, id: `${epoch}-${(n += 1)}` });
  add("status", { state: "processing", attempt: 1, at: "2026-01-01T00:00:00Z" });
  for (let i = 0; i < size; i += 1) {
    const dice = random.below(20);
    if (dice === 0) add("checkpoint", { offset: points.length, progress: i / size, saved_at: "2026-01-01T00:00:01Z" });
    else if (dice === 1) add("progress", { progress: i / size, done: i, total: size, unit: "tokens" });
    else if (dice === 2) {
      epoch += 5_000;
      add("status", { state: "recovering", attempt: 1, reason: "worker_lost", at: "2026-01-01T00:00:02Z" });
      add("status", { state: "processing", attempt: 2, at: "2026-01-01T00:00:03Z" });
    } else if (dice === 3) add("item", { index: random.below(5), ok: true, result: `r${i}` });
    else {
      const offset = dice === 4 ? random.below(points.length + 1) : points.length;
      const text = randomText(random, most);
      points = [...points.slice(0, offset), ...text];
      add("chunk", { offset, text, progress: i / size });
    }
  }
  const text = points.join("");
  add("done", { state: "completed", length: points.length, sha256: "x", finished_at: "z", result: "/r" });
  return { events, text };
}

/** Merges neighbouring chunks and leaves out superseded events, as a server may in a replay. */
export function folded(events) {
  const out = [];
  for (const event of events) {
    const last = out.at(-1);
    const joins = last?.type === "chunk" && event.type === "chunk" &&
      event.data.offset === last.data.offset + [...last.data.text].length;
    if (joins) {
      out[out.length - 1] = {
        ...event, data: { ...event.data, offset: last.data.offset, text: last.data.text + event.data.text },
      };
    } else if (last && last.type === event.type && ["progress", "status", "checkpoint"].includes(event.type)) {
      out[out.length - 1] = event;
    } else out.push(event);
  }
  return out;
}

export function frame({ id, type, data }, end = "\n") {
  const json = JSON.stringify(data).replace(/[\u0080-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `id: ${id}${end}event: ${type}${end}data: ${json}${end}${end}`;
}

/** A real server on a free port. `answer(request, response)` does what a test wants. */
export async function serve(answer) {
  const seen = [];
  let open = 0;
  let most = 0;
  const server = createServer((request, response) => {
    seen.push({ url: request.url, method: request.method, headers: request.headers, at: Date.now() });
    open += 1;
    most = Math.max(most, open);
    response.on("close", () => (open -= 1));
    answer(request, response, seen.length);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    base: `http://127.0.0.1:${server.address().port}`,
    seen,
    most: () => most,
    open: () => open,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

export function eventStream(response, retry = 1) {
  response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store" });
  response.write(`retry: ${retry}\n\n`);
}

/** What lies after a cursor; everything for an unknown one. */
export function after(events, cursor) {
  const at = events.findIndex((event) => event.id === cursor);
  return events.slice(at + 1);
}

/** Waits for a condition, with a description for the failure. */
export async function until(what, condition, ms = 10_000) {
  const deadline = Date.now() + ms;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`waited ${ms} ms for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
