// Servers, agents, listeners and clocks that behave as badly as they may: no hang, no storm, no half truth.
import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";
import { INITIAL, Link, fold, follow, textOf } from "../../../unbroken/static/stream.js";
import { ASKED_MAX_MS, retryAfterMs } from "../../../unbroken/static/stream/problems.js";
import { after, chance, frame, randomLog, until } from "./support.mjs";

let task;
afterEach(() => {
  mock.timers.reset();
  task?.close();
});

const quick = { retryMs: 1, maxDelayMs: 5, random: () => 0.5 };
const chunk = (offset, text, id) => frame({ type: "chunk", data: { offset, text, progress: 0 }, id });
const done = (length, id) => frame({ type: "done", data: { state: "completed", length }, id });
const refusal = (status, headers = {}) => () => new Response("", { status, headers });

/** An agent without a network. `answer(nth, cursor)` gives a Response, or the text of a stream that stays open. */
function agent(answer) {
  const self = { asked: [], open: new Set() };
  self.fetch = async (_url, { headers, signal }) => {
    const cursor = headers["Last-Event-ID"] ?? "";
    const given = await answer(self.asked.push({ cursor, at: Date.now() }), cursor);
    if (given instanceof Response) return given;
    const one = {};
    const body = new ReadableStream({
      start(controller) {
        one.write = (text) => self.open.has(one) && controller.enqueue(new TextEncoder().encode(text));
        self.open.add((self.last = one));
        signal.addEventListener("abort", () => self.open.delete(one) && controller.error(signal.reason));
        one.write(given);
      },
      cancel: () => self.open.delete(one),
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  };
  return self;
}

/** Time goes on in small steps; between them everything that waits for a promise has its turn. */
async function pass(ms, step = 100) {
  for (let gone = 0; gone < ms; gone += step) {
    mock.timers.tick(step);
    for (let i = 0; i < 2; i += 1) await new Promise((resolve) => setImmediate(resolve));
  }
}

const ownClock = () => mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"], now: 1_700_000_000_000 });

async function errorsOf(work) {
  const before = globalThis.reportError;
  const told = [];
  globalThis.reportError = (error) => told.push(error.message);
  try {
    await work();
  } finally {
    globalThis.reportError = before;
  }
  return told;
}

test("cut, reopened or closed after any number of steps: exact text, one connection, nothing left open", async () => {
  const { events, text } = randomLog(chance(41), { size: 12 });
  const wire = (list) => list.map((event) => frame(event)).join("");
  for (let steps = 0; steps < 40; steps += 1) {
    for (const what of ["drop", "resume", "close"]) {
      const server = agent((_nth, cursor) => {
        const rest = after(events, cursor);
        if (rest.length === 0) return new Response(null, { status: 204 });
        setImmediate(() => server.last.write(wire(rest.slice(4))));
        return wire(rest.slice(0, 4));
      });
      task = follow("0-x", { fetch: server.fetch, ...quick });
      for (let i = 0; i < steps; i += 1) await (i % 8 === 7 ? new Promise((resolve) => setImmediate(resolve)) : null);
      task[what]();
      const view = await task.finished;
      if (what !== "close") assert.equal(textOf(view.text), text, `${what} after ${steps} steps`);
      else if (view.state !== "completed") assert.equal(task.connection.phase, "idle");
      for (let i = 0; i < 3; i += 1) await new Promise((resolve) => setImmediate(resolve));
      assert.equal(server.open.size, 0, `${what} after ${steps} steps`);
    }
  }
});

test("closed before it began: nothing is asked", async () => {
  const server = agent(() => "");
  follow("0-x", { fetch: server.fetch }).close();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(server.asked, []);
});

test("closed by whoever hears of a change: neither a hole nor an end begins it again or tells of an end", async () => {
  for (const wire of [chunk(9, "hole", "1-1"), done(0, "1-1")]) {
    const server = agent(() => wire);
    task = follow("0-x", { fetch: server.fetch, ...quick });
    const ends = [];
    task.on("change", () => task.close());
    task.on("end", () => ends.push(1));
    await task.finished;
    for (let i = 0; i < 5; i += 1) await new Promise((resolve) => setImmediate(resolve));
    task.resume();
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([server.asked.length, server.open.size, ends, task.connection.phase], [1, 0, [], "idle"]);
  }
});

test("whoever hears of the wait may cut it short, or stop", async () => {
  ownClock();
  const server = agent((nth) => (nth === 1 ? refusal(503, { "Retry-After": "60" })() : done(0, "1-1")));
  task = follow("0-x", { fetch: server.fetch });
  const stop = task.on("connection", ({ phase }) => phase === "reconnecting" && task.resume());
  await pass(200);
  assert.equal((await task.finished).state, "completed");
  stop();
  const other = agent(refusal(503));
  const second = follow("0-x", { fetch: other.fetch });
  second.on("connection", ({ phase }) => phase === "reconnecting" && second.close());
  await pass(60_000, 500);
  assert.deepEqual([other.asked.length, second.connection.phase], [1, "idle"]);
});

test("a listener that throws is told of, and takes nothing from the line or from the others", async () => {
  const events = [];
  const server = agent(() => chunk(0, "a", "1-1"));
  const told = await errorsOf(async () => {
    const link = new Link({
      url: () => "/x", fetch: server.fetch, ...quick,
      onEvents: (some) => {
        events.push(...some.map(({ id }) => id));
        throw new Error("of events");
      },
      onStatus: ({ phase }) => {
        if (phase === "live") throw new Error("of status");
      },
    });
    link.start();
    await until("the first event", () => events.length === 1);
    server.last.write(chunk(1, "b", "1-2"));
    await until("the second event", () => events.length === 2);
    link.stop();
  });
  assert.deepEqual([events, server.asked.length], [["1-1", "1-2"], 1]);
  assert.deepEqual(told, ["of status", "of events", "of events"]);
});

test("all ears hear everything in the same order, and one that stops or comes is no trouble", async () => {
  const server = agent(() => done(0, "1-1"));
  task = follow("0-x", { fetch: server.fetch, ...quick });
  const phases = [];
  let again = 0;
  task.on("connection", ({ phase }) => {
    if (phase === "ended" && (again += 1) === 1) task.resume();
    task.on("connection", () => {}); // would go on for ever if it were heard at once
  });
  const deaf = [];
  task.on("connection", () => stop());
  const stop = task.on("connection", () => deaf.push(1));
  task.on("connection", ({ phase }) => phases.push(phase));
  await until("the second end", () => again === 2);
  assert.deepEqual(phases.filter((phase) => phase !== "live"), ["connecting", "ended", "connecting", "ended"]);
  assert.deepEqual(deaf, []);
});

test("what a server asks for is done, but not for ever: seconds, dates by its own clock, nonsense", () => {
  const asked = (value, more = {}) => retryAfterMs(new Headers({ "Retry-After": value, ...more }), Date.parse("2026-01-01T00:00:00Z"));
  assert.equal(asked("7"), 7_000);
  assert.equal(asked("Thu, 01 Jan 2026 00:00:09 GMT"), 9_000);
  assert.equal(asked("Thu, 01 Jan 2026 00:00:09 GMT", { Date: "Thu, 01 Jan 2026 00:00:06 GMT" }), 3_000);
  for (const past of ["Thu, 01 Jan 1970 00:00:00 GMT", "-5", "soon", ""]) assert.equal(asked(past), 0, past);
  for (const far of ["9".repeat(400), "86400", "Fri, 31 Dec 9999 23:59:59 GMT"]) assert.equal(asked(far), ASKED_MAX_MS);
  assert.equal(retryAfterMs(new Headers()), 0);
});

test("waits of any length make no storm: Retry-After, retry:, and options that name no limit", async () => {
  ownClock();
  const cases = [
    [refusal(429, { "Retry-After": "99999999999" }), {}],
    [refusal(503, { "Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT" }), {}],
    [() => new Response(`retry: ${"9".repeat(40)}\n\n`, { headers: { "Content-Type": "text/event-stream" } }), {}],
    [refusal(502), { retryMs: Infinity, random: () => NaN }],
  ];
  for (const [answer, options] of cases) {
    const server = agent(answer);
    task = follow("0-x", { fetch: server.fetch, ...options });
    await pass(20 * 60_000, 1_000);
    assert.ok(server.asked.length <= 5, `${server.asked.length} requests in twenty minutes`);
    if (!options.retryMs) assert.ok(server.asked.length >= 3, "it goes on trying");
    task.close();
  }
  const server = agent(() => chunk(0, "a", "1-1"));
  task = follow("0-x", { fetch: server.fetch, silenceMs: Infinity });
  await pass(10 * 60_000, 1_000);
  assert.equal(server.asked.length, 1, "whoever wants no limit of silence has none");
});

test("a wake-up that is told three times costs no wait, and does not overrule the server", async () => {
  ownClock();
  const server = agent(() => chunk(0, "a", "1-1"));
  const link = new Link({ url: () => "/x", fetch: server.fetch, onEvents: () => {} });
  link.start();
  await pass(300);
  mock.timers.setTime(Date.now() + 25_000);
  for (let i = 0; i < 3; i += 1) {
    link.wake(); // online, visible, resumed
    await null;
    for (let turn = 0; turn < 4; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  }
  assert.deepEqual([server.asked.length, link.status.phase], [2, "live"]);
  link.stop();
  const busy = agent(refusal(429, { "Retry-After": "20" }));
  const polite = new Link({ url: () => "/x", fetch: busy.fetch, onEvents: () => {}, random: () => 0.5 });
  polite.start();
  await pass(300);
  for (let i = 0; i < 10; i += 1) {
    polite.wake();
    await pass(1_000);
  }
  assert.equal(busy.asked.length, 1);
  polite.reopen("changed"); // a click is somebody's wish
  await pass(100);
  assert.equal(busy.asked.length, 2);
  polite.stop();
});

test("a page that was frozen reads what came meanwhile before it calls the line silent", async () => {
  const server = agent(() => chunk(0, "a", "1-1"));
  task = follow("0-x", { fetch: server.fetch, ...quick, silenceMs: 300 });
  await until("text", () => task.view.text.length === 1);
  let beats = 0;
  // As from a socket: read after the timers that are due.
  const beat = setInterval(() => setImmediate(() => server.last.write(":\n", (beats += 1))), 20);
  const end = Date.now() + 700;
  while (Date.now() < end); // nothing of this page runs
  await until("heartbeats", () => beats > 8);
  clearInterval(beat);
  assert.equal(server.asked.length, 1);
});

test("a page to sign in, in place of the stream, is named as such and waited out", async () => {
  const html = () => new Response("<p>Welcome to the hotel", { headers: { "Content-Type": "text/html" } });
  const server = agent((nth) => (nth < 3 ? html() : nth === 3 ? new Response(done(0, "1-1"), {
    headers: { "Content-Type": "Text/Event-Stream;charset=UTF-8" } }) : refusal(500)()));
  const problems = [];
  task = follow("0-x", { fetch: server.fetch, ...quick });
  task.on("connection", ({ error }) => error && problems.push(error.code));
  assert.equal((await task.finished).state, "completed");
  assert.deepEqual(problems, ["not-a-stream", "not-a-stream"]);
});

test("comments only, ids from the far future, the same event twice, events that are none", async () => {
  const far = `${"9".repeat(16)}-${"9".repeat(16)}`;
  const server = agent((nth) => (nth === 1 ? "\ufeff:\n:\n:\n" : [
    chunk(0, "one ", far), chunk(0, "one ", far), "data: {\n\n", "data: null\n\n", 'event: chunk\ndata: ["x"]\n',
    `\n\n${chunk(0, "one ", far)}`, frame({ type: "toString", data: {}, id: far }), chunk(4, "two", far), done(7, far)].join("")));
  task = follow("0-x", { fetch: server.fetch, ...quick });
  await until("a line with comments", () => task.connection.phase === "live");
  assert.equal(task.view.lastEventId, "");
  task.drop();
  await until("the events", () => task.view.lastEventId === far || server.asked.length > 2);
  const view = await task.finished;
  assert.equal(textOf(view.text), "one two");
});

test("data that cannot be a chunk is something missed, never a text that is wrong", () => {
  const start = fold(INITIAL, { type: "chunk", data: { offset: 0, text: "abc", progress: 0 }, id: "1-1" });
  for (const data of [{}, { offset: -1, text: "x" }, { offset: "1", text: "x" }, { offset: 1.5, text: "x" }, { offset: 1 },
    { offset: 1, text: null }, { offset: null, text: "x" }, { offset: NaN, text: "x" }, []]) {
    const view = fold(start, { type: "chunk", data, id: "1-2" });
    assert.deepEqual([view.missed, textOf(view.text)], [true, "abc"], JSON.stringify(data));
  }
  assert.equal(fold(start, { type: "status", data: {}, id: "1-2" }).state, start.state);
});

test("an end that came garbled is fetched again, from the start", async () => {
  const server = agent((nth, cursor) => {
    if (cursor !== "") return new Response(null, { status: 204 });
    return nth === 1 ? `${chunk(0, "all", "1-1")}id: 1-2\nevent: done\ndata: {"state":"comp\n\n` : chunk(0, "all", "1-1") + done(3, "1-2");
  });
  task = follow("0-x", { fetch: server.fetch, ...quick });
  await until("the cursor", () => task.view.text.length === 3);
  task.drop();
  const view = await task.finished;
  assert.deepEqual([view.state, textOf(view.text)], ["completed", "all"]);
  assert.deepEqual(server.asked.map(({ cursor }) => cursor), ["", "1-2", ""]);
});

test("recover() without a network, without an answer, or with somebody else's answer is an ApiError", async () => {
  const acting = (answer) => {
    const fetch = async (_url, { method = "GET" }) => (method === "POST" ? answer() : new Promise(() => {}));
    const asking = follow("0-x", { fetch });
    return asking.recover().finally(() => asking.close());
  };
  await assert.rejects(acting(() => Promise.reject(new TypeError("fetch failed"))), { name: "ApiError", code: "network", status: 0 });
  await assert.rejects(acting(() => new Response("<p>", { headers: { "Content-Type": "text/html" } })), { code: "not-a-stream" });
  await assert.rejects(acting(() => new Response("{", { headers: { "Content-Type": "application/json" } })), { code: "network" });
  const refused = { status: 409, headers: { "Content-Type": "application/problem+json" } };
  await assert.rejects(acting(() => new Response('{"detail":"It runs."}', refused)), { status: 409, message: "It runs." });
  ownClock();
  const hanging = assert.rejects(acting(() => new Promise(() => {})), { code: "network" });
  await pass(31_000, 500);
  await hanging;
});

test("two followers of one task do not know of each other", async () => {
  const server = agent(() => chunk(0, "a", "1-1"));
  task = follow("0-x", { fetch: server.fetch, ...quick });
  const other = follow("0-x", { fetch: server.fetch, ...quick });
  await until("both", () => task.view.text.length + other.view.text.length === 2);
  other.close();
  server.last.write("");
  assert.deepEqual([task.connection.phase, other.connection.phase], ["live", "idle"]);
});

test("options that could never work are told at the call", () => {
  assert.throws(() => follow("0-x", { base: "localhost:8080" }), /begins with http/);
  assert.throws(() => follow("0-x", { base: "127.0.0.1:8080/x" }), /begins with http/);
  for (const key of ["ub abc", "ub_\nabc", "ub_ü", 7]) assert.throws(() => follow("0-x", { key }), /without spaces/);
  follow("0-x", { key: "ub_abc\n", fetch: () => new Promise(() => {}) }).close();
  assert.throws(() => follow("0-x", { fetch: "node" }), /fetch is a function/);
  assert.throws(() => follow("0-\ud800"), /id is a text/);
  follow("0-x", { base: "/behind/a/proxy", fetch: () => new Promise(() => {}) }).close();
});
