// follow() against a real HTTP server that misbehaves in the ways real ones do.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { ApiError, explain, follow, followMany, textOf } from "../../../unbroken/static/stream.js";
import { after, chance, eventStream, folded, frame, randomLog, serve, until } from "./support.mjs";

let server;
let task;
afterEach(async () => {
  task?.close();
  await server?.close();
});

const quick = { retryMs: 1, maxDelayMs: 5, random: () => 0.5 };
const status = (code, body = "") => (_request, response) => {
  response.writeHead(code, { "Content-Type": "application/problem+json" });
  response.end(body);
};

test("a hundred cut connections, exact text, every return with the last id", async () => {
  for (let seed = 1; seed <= 4; seed += 1) {
    const random = chance(seed);
    const { events, text } = randomLog(random, { size: 120 });
    server = await serve((request, response) => {
      const cursor = request.headers["last-event-id"] ?? "";
      const rest = after(events, cursor);
      if (rest.length === 0) return response.writeHead(204).end();
      eventStream(response);
      const bytes = Buffer.from((random.below(2) ? rest : folded(rest)).map((event) => frame(event)).join(""));
      const size = 1 + random.below(Math.min(bytes.length, 900));
      return response.write(bytes.subarray(0, size), () => random.below(2) ? response.end() : response.destroy());
    });
    task = follow("0-x", { base: server.base, ...quick });
    const view = await task.finished;
    assert.equal(textOf(view.text), text, `seed ${seed}`);
    assert.equal(view.state, "completed");
    assert.equal(task.connection.phase, "ended");
    assert.equal(task.connection.error, null);
    assert.ok(server.most() <= 1, "never two connections at once");
    const cursors = server.seen.map((request) => request.headers["last-event-id"] ?? "");
    assert.equal(new Set(cursors.slice(0, 1)).has(""), true);
    await server.close();
  }
});

test("204 ends it, without another request", async () => {
  server = await serve((_request, response) => response.writeHead(204).end());
  task = follow("0-x", { base: server.base, ...quick });
  await task.finished;
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(server.seen.length, 1);
  assert.equal(task.connection.phase, "ended");
});

for (const [code, word] of [[401, "sign-in"], [404, "not-found"], [410, "gone"]]) {
  test(`${code} is final and says what to do`, async () => {
    server = await serve(status(code, "{}"));
    task = follow("0-x", { base: server.base, ...quick });
    let problem = null;
    task.on("end", (_view, error) => (problem = error));
    await assert.rejects(task.finished, (error) => {
      assert.ok(error instanceof ApiError);
      assert.deepEqual([error.status, error.code, error.message], [code, word, error.problem.message]);
      return true;
    });
    assert.equal(problem.code, word);
    assert.match(problem.message, /\w+ \w+/);
    assert.equal(server.seen.length, 1);
  });
}

test("502, 503 and a page that is not an event stream are tried again, slower and slower", async () => {
  const { events, text } = randomLog(chance(3));
  server = await serve((_request, response, nth) => {
    if (nth === 1) return status(502)(null, response);
    if (nth === 2) return response.writeHead(503, { "Retry-After": "0" }).end();
    if (nth === 3) return response.writeHead(200, { "Content-Type": "text/html" }).end("<p>Please sign in to the hotel");
    eventStream(response);
    return response.end(events.map((event) => frame(event)).join(""));
  });
  const phases = [];
  task = follow("0-x", { base: server.base, ...quick });
  task.on("connection", (state) => phases.push(state.phase));
  const view = await task.finished;
  assert.equal(textOf(view.text), text);
  assert.ok(phases.includes("reconnecting"));
});

test("a malformed cursor is let go and the text fetched from the start", async () => {
  const { events, text } = randomLog(chance(9));
  server = await serve((request, response) => {
    if (request.headers["last-event-id"] === "bad") return status(400, "{}")(request, response);
    eventStream(response);
    return response.end(events.map((event) => frame(event)).join(""));
  });
  const { INITIAL } = await import("../../../unbroken/static/stream.js");
  task = follow("0-x", { base: server.base, ...quick, view: { ...INITIAL, lastEventId: "bad" } });
  assert.equal(textOf((await task.finished).text), text);
  assert.deepEqual(server.seen.map((request) => request.headers["last-event-id"]), ["bad", undefined]);
});

test("a hole in the stream is healed from the start", async () => {
  const events = [
    { type: "chunk", data: { offset: 0, text: "one ", progress: 0 }, id: "1-1" },
    { type: "chunk", data: { offset: 4, text: "two ", progress: 0 }, id: "1-2" },
    { type: "chunk", data: { offset: 8, text: "three", progress: 0 }, id: "1-3" },
    { type: "done", data: { state: "completed", length: 13 }, id: "1-4" },
  ];
  server = await serve((_request, response, nth) => {
    eventStream(response);
    const sent = nth === 1 ? [events[0], events[2], events[3]] : events;
    response.end(sent.map((event) => frame(event)).join(""));
  });
  task = follow("0-x", { base: server.base, ...quick });
  const view = await task.finished;
  assert.equal(textOf(view.text), "one two three");
  assert.equal(server.seen[1].headers["last-event-id"], undefined);
});

test("a stream that never fits together is given up with words, not asked for ever", async () => {
  server = await serve((_request, response) => {
    eventStream(response);
    response.end(frame({ type: "chunk", data: { offset: 9, text: "x", progress: 0 }, id: "1-1" }));
  });
  task = follow("0-x", { base: server.base, ...quick });
  let problem = null;
  task.on("end", (_view, error) => (problem = error));
  await assert.rejects(task.finished, /stored result is still right/);
  assert.equal(problem.code, "damaged");
  assert.ok(server.seen.length <= 7);
});

test("silence is noticed; heartbeats are not silence", async () => {
  server = await serve((_request, response, nth) => {
    eventStream(response);
    if (nth === 1) return; // says nothing any more, with the connection open
    response.write(frame({ type: "chunk", data: { offset: 0, text: "a", progress: 0 }, id: "1-1" }));
    const beat = setInterval(() => response.write(":\n"), 40);
    response.on("close", () => clearInterval(beat));
  });
  task = follow("0-x", { base: server.base, ...quick, silenceMs: 600 });
  await until("the second connection", () => server.seen.length === 2);
  await until("a second of heartbeats", () => task.connection.phase === "caught-up");
  assert.equal(server.seen.length, 2, "a line with heartbeats was given up");
  assert.equal(task.connection.last.why, "silence");
});

test("drop() heals by itself and counts what was replayed", async () => {
  const { events, text } = randomLog(chance(11), { size: 40 });
  const half = 20;
  server = await serve((request, response, nth) => {
    eventStream(response);
    const rest = after(events, request.headers["last-event-id"] ?? "");
    if (nth === 1) return response.write(rest.slice(0, half).map((event) => frame(event)).join(""));
    return response.end(folded(rest).map((event) => frame(event)).join(""));
  });
  task = follow("0-x", { base: server.base, ...quick });
  await until("the first half", () => task.view.lastEventId === events[half - 1].id);
  task.drop();
  const view = await task.finished;
  assert.equal(textOf(view.text), text);
  const { reconnects, replayed, last } = task.connection;
  assert.deepEqual([reconnects, replayed, last.why, last.events], [1, events.length - half, "dropped", events.length - half]);
  assert.ok(last.frames < last.events);
});

test("many tasks on one connection; one more joins without a lost or doubled character", async () => {
  const logs = { a: randomLog(chance(21)), b: randomLog(chance(22)), c: randomLog(chance(23)) };
  const places = new Map();
  let made = 0;
  server = await serve((request, response) => {
    eventStream(response);
    const asked = new URL(request.url, "http://x").searchParams.getAll("task");
    const from = { ...(places.get(request.headers["last-event-id"]) ?? {}) };
    for (const id of asked) {
      const rest = after(logs[id].events, from[id]).slice(0, 25);
      for (const event of rest) {
        from[id] = event.id;
        const vector = `v${(made += 1)}`;
        places.set(vector, { ...from });
        response.write(frame({ ...event, id: vector, data: { ...event.data, task_id: id } }));
      }
    }
    if (asked.length === 3) response.end();
  });
  const many = followMany(["a", "b"], { base: server.base, ...quick });
  task = many;
  await until("events of both", () => many.view("a").lastEventId !== "" && many.view("b").lastEventId !== "");
  many.add("c");
  await until("all ended", () => many.link.status.phase === "ended");
  for (const id of ["a", "b", "c"]) assert.equal(textOf(many.view(id).text), logs[id].text, id);
  assert.ok(server.most() <= 1);
});

test("recover, pause and cancel are calls with the server's words when refused", async () => {
  server = await serve((request, response) => {
    if (request.method === "GET") return eventStream(response);
    if (request.url.endsWith("/recover")) {
      response.writeHead(202, { "Content-Type": "application/json" });
      return response.end('{"recovery_id":"r1","from_checkpoint":null}');
    }
    return status(409, '{"detail":"The task is completed."}')(request, response);
  });
  task = follow("0-x", { base: server.base, key: "k", ...quick });
  assert.equal((await task.recover()).recovery_id, "r1");
  await assert.rejects(task.pause(), /The task is completed/);
  assert.equal(server.seen.at(-1).headers.authorization, "Bearer k");
});

test("close() leaves nothing behind", async () => {
  server = await serve((_request, response) => eventStream(response));
  task = follow("0-x", { base: server.base, ...quick });
  await until("a connection", () => server.open() === 1);
  task.close();
  await until("no connection", () => server.open() === 0);
  await task.finished;
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(server.seen.length, 1);
});

test("a task that never rests does not blur where the replay ends", async () => {
  const words = Array.from({ length: 40 }, (_nothing, i) => ({ offset: 5 * i, text: "word ", progress: 0 }));
  const events = words.map((data, i) => ({ type: "chunk", data, id: `1-${i + 1}` }));
  let beat;
  server = await serve((request, response, nth) => {
    eventStream(response);
    const rest = after(events, request.headers["last-event-id"] ?? "");
    if (nth === 1) return response.end(rest.slice(0, 5).map((event) => frame(event)).join(""));
    response.write(rest.slice(0, 15).map((event) => frame(event)).join(""));
    let at = 15;
    clearInterval(beat); // of a connection before
    beat = setInterval(() => at < rest.length && response.write(frame(rest[(at += 1) - 1])), 15);
  });
  task = follow("0-x", { base: server.base, ...quick });
  try {
    await until("the break to be told", () => task.connection.reconnects === 1);
    const { events: replayed } = task.connection.last;
    assert.ok(replayed >= 15 && replayed < 35, `${replayed} events`);
  } finally {
    clearInterval(beat);
  }
});

test("tasks come and go on one connection, and every view stays exact", async () => {
  const logs = { a: randomLog(chance(31)), b: randomLog(chance(32)), c: randomLog(chance(33)) };
  let sent = 0;
  server = await serve((request, response) => {
    eventStream(response);
    const asked = new URL(request.url, "http://x").searchParams.getAll("task");
    const cursor = (request.headers["last-event-id"] ?? "").split(",").filter(Boolean).map((part) => part.split(":"));
    const from = Object.fromEntries(cursor.filter(([id]) => asked.includes(id)));
    for (const id of asked) {
      for (const event of after(logs[id].events, from[id]).slice(0, 30)) {
        from[id] = event.id;
        sent += 1;
        const vector = Object.entries(from).map(([task_id, at]) => `${task_id}:${at}`).join(",");
        response.write(frame({ ...event, id: vector, data: { ...event.data, task_id: id } }));
      }
    }
    setTimeout(() => response.destroy(), 15);
  });
  for (let seed = 1; seed <= 12; seed += 1) {
    const random = chance(seed);
    const many = followMany([random.pick(["a", "b", "c"])], { base: server.base, ...quick });
    for (let i = 0; i < 6; i += 1) {
      await new Promise((resolve) => setTimeout(resolve, random.below(25)));
      many.set(["a", "b", "c"].filter(() => random.below(2) === 0));
    }
    many.set(["a", "b", "c"]);
    await until(`all three to end, seed ${seed}`, () => ["a", "b", "c"].every((id) => many.view(id).state === "completed"));
    for (const id of ["a", "b", "c"]) assert.equal(textOf(many.view(id).text), logs[id].text, `${id}, seed ${seed}`);
    many.close();
  }
  assert.ok(sent > 0);
});

test("a task that comes back at once costs nothing", async () => {
  server = await serve((_request, response) => {
    eventStream(response);
    response.write(frame({ type: "chunk", data: { offset: 0, text: "a", progress: 0, task_id: "a" }, id: "a:1-1" }));
  });
  const many = followMany(["a", "b"], { base: server.base, ...quick });
  task = many;
  await until("text", () => many.view("a").text.length === 1);
  many.set(["b"]);
  many.set(["a", "b"]);
  await new Promise((resolve) => setTimeout(resolve, 40));
  assert.equal(server.seen.length, 1);
  assert.equal(textOf(many.view("a").text), "a");
});

test("a task that comes back after a reconnect is asked for again", async () => {
  const end = { type: "done", data: { state: "completed", length: 1, task_id: "a" } };
  server = await serve((request, response, nth) => {
    eventStream(response);
    const both = new URL(request.url, "http://x").searchParams.getAll("task").includes("a");
    if (both) response.write(frame({ type: "chunk", data: { offset: 0, text: "a", progress: 0, task_id: "a" }, id: `a:1-${nth}` }));
    if (both && nth > 2) response.write(frame({ ...end, id: `a:1-${nth + 1}` }));
  });
  const many = followMany(["a", "b"], { base: server.base, ...quick });
  task = many;
  await until("text", () => many.view("a").text.length === 1);
  many.set(["b"]);
  many.drop();
  await until("the second connection", () => server.seen.length === 2);
  many.set(["a", "b"]);
  await until("the end", () => many.view("a").state === "completed");
});

test("a refusal that nobody waits for is no unhandled rejection", async () => {
  const unhandled = [];
  const hear = (error) => unhandled.push(error);
  process.on("unhandledRejection", hear);
  server = await serve(status(404, "{}"));
  task = follow("0-x", { base: server.base, ...quick });
  await until("the end", () => task.connection.phase === "ended");
  await new Promise((resolve) => setTimeout(resolve, 20));
  process.off("unhandledRejection", hear);
  assert.deepEqual(unhandled, []);
});

test("a call that would do nothing is told", () => {
  assert.throws(() => follow("0-x", { onChange() {} }), /no option "onChange".*task\.on\("change"/);
  assert.throws(() => follow("0-x", { silence: 3 }), /no option "silence"\. There are: base,/);
  assert.throws(() => follow("0-x", { silenceMs: "3" }), /number of milliseconds/);
  assert.throws(() => follow("0-x", { base: new URL("http://x") }), /base is an address/);
  assert.throws(() => follow("0-x", null), /options are an object/);
  assert.throws(() => follow(""), /id is a text/);
  assert.throws(() => follow({ task_id: "0-x" }), /give it task\.task_id/);
  assert.throws(() => followMany("0-x"), /followMany\(\[id\]\)/);
  assert.throws(() => followMany([1]), /id is a text/);
  const many = followMany([]);
  assert.throws(() => many.on("end", () => {}), /no event "end"\. There are: change, connection, refused/);
  assert.throws(() => many.on("change"), /needs a function/);
  many.close();
});

test("an address may end in a slash", async () => {
  server = await serve((_request, response) => response.writeHead(204).end());
  task = follow("0-x", { base: `${server.base}/`, ...quick });
  await task.finished;
  assert.equal(server.seen[0].url, "/api/tasks/0-x/stream");
});

test("a fault of the server is told with the id under which its log has more", async () => {
  const answer = (incident) => new Response(JSON.stringify({ detail: "Something went wrong on our side.", incident }),
    { status: 500, headers: { "Content-Type": "application/problem+json" } });
  const problem = await explain(answer("0123456789ab"));
  assert.equal(problem.incident, "0123456789ab");
  assert.equal(problem.message, "Something went wrong on our side. Incident 0123456789ab.");
  for (const nothing of [undefined, null, "", 7.5, "<b>"]) {
    assert.deepEqual(await explain(answer(nothing)), { status: 500, code: "refused", message: "Something went wrong on our side.", fields: [] });
  }
});
