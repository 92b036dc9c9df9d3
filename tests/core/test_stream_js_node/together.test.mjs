// Several tasks on one connection: what happens to one of them is nobody else's trouble.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { FeedCore } from "../../../unbroken/static/feed-core.js";
import { followMany, textOf } from "../../../unbroken/static/stream.js";
import { eventStream, frame, serve, until } from "./support.mjs";

let server;
let many;
afterEach(async () => {
  many?.close();
  await server?.close();
});

const quick = { retryMs: 1, maxDelayMs: 5, random: () => 0.5 };
const chunk = (task_id, offset, text, n) => frame({ type: "chunk", data: { task_id, offset, text, progress: 0 }, id: `v-${n}` });
const done = (task_id, length, n) => frame({ type: "done", data: { task_id, state: "completed", length }, id: `v-${n}` });

/** A server of tasks: `gone` are not there, `look` answers for single tasks, `streamed` writes what a stream says. */
async function tasks({ gone, look = 200, streamed }) {
  const one = await serve((request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://x");
    const asked = pathname === "/api/stream" ? searchParams.getAll("task") : [pathname.split("/").at(-1)];
    const missing = asked.some((id) => gone.has(id));
    if (pathname !== "/api/stream" && !missing) return response.writeHead(one.look).end("{}");
    if (missing) return response.writeHead(404, { "Content-Type": "application/problem+json" }).end('{"detail":"There is no such task."}');
    eventStream(response);
    return streamed(response, asked, request);
  });
  one.look = look;
  one.streams = () => one.seen.filter(({ url }) => url.startsWith("/api/stream")).map(({ url }) => new URL(url, "http://x").searchParams.getAll("task").join());
  return one;
}

function listen(followers) {
  const refused = [];
  followers.on("refused", (problem, ids) => refused.push([problem.code, ...ids]));
  return refused;
}

test("one of them is deleted: it is told for that one, the others go on", async () => {
  const gone = new Set();
  let rest = null;
  server = await tasks({ gone, streamed: (response, asked) => {
    if (asked.includes("a")) return response.write(chunk("a", 0, "short", 1) + done("a", 5, 2) + chunk("b", 0, "long ", 3));
    return (rest = response);
  } });
  many = followMany(["a", "b", "c"], { base: server.base, ...quick });
  const refused = listen(many);
  await until("text of b", () => many.view("b").text.length === 5);
  gone.add("a").add("c");
  many.drop();
  await until("the others' stream", () => rest !== null);
  assert.deepEqual(refused, [["not-found", "a", "c"]]);
  assert.deepEqual(many.ids, ["b"]);
  rest.end(chunk("b", 5, "text", 4) + done("b", 9, 5));
  await until("the end", () => many.link.status.phase === "ended");
  assert.equal(textOf(many.view("b").text), "long text");
  assert.equal(many.link.status.error, null);
  assert.deepEqual(server.streams(), ["a,b,c", "a,b,c", "b"]);
});

test("all that stay have ended: the deleted one's refusal is the end, and no error of the others", async () => {
  const gone = new Set();
  server = await tasks({ gone, streamed: (response) => response.write(done("a", 0, 1) + chunk("b", 0, "b", 2)) });
  many = followMany(["a", "b"], { base: server.base, ...quick });
  const refused = listen(many);
  await until("b", () => many.view("b").text.length === 1);
  gone.add("b");
  many.drop();
  await until("the end", () => many.link.status.phase === "ended");
  assert.deepEqual([refused, many.link.status.error], [[["not-found", "b"]], null]);
  assert.equal(server.streams().length, 2);
});

test("none of them is there: refused as a whole, once", async () => {
  server = await tasks({ gone: new Set(["a", "b"]) });
  many = followMany(["a", "b"], { base: server.base, ...quick });
  const refused = listen(many);
  await until("the end", () => many.link.status.phase === "ended");
  assert.deepEqual(refused, [["not-found", "a", "b"]]);
  assert.equal(server.streams().length, 1);
});

test("who is gone is not guessed: a server that is restarting says nothing about a task", async () => {
  const gone = new Set();
  server = await tasks({ gone, streamed: (response) => response.write(chunk("b", 0, "b", 1)) });
  for (const code of [502, 503, 429, 500]) {
    gone.add("a");
    server.look = code;
    const one = followMany(["a", "b"], { base: server.base, ...quick });
    many = one;
    const refused = listen(one);
    await until("a's refusal", () => refused.length === 1);
    assert.deepEqual(refused, [["not-found", "a"]], `${code}`);
    await until("b", () => one.view("b").text.length === 1);
    one.close();
  }
});

test("tasks change while it is found out who is gone: nobody is lost", async () => {
  const gone = new Set(["a"]);
  let held = null;
  const slow = async (url, options) => {
    if (String(url).endsWith("/api/tasks/a") && held === null) await new Promise((resolve) => (held = resolve));
    return fetch(url, options);
  };
  server = await tasks({ gone, streamed: (response, asked) => response.end(asked.map((id, i) => done(id, 0, i)).join("")) });
  many = followMany(["a", "b"], { base: server.base, fetch: slow, ...quick });
  await until("the question", () => held !== null);
  many.set(["b", "c"]);
  held();
  await until("the end", () => many.link.status.phase === "ended");
  assert.deepEqual(["b", "c"].map((id) => many.view(id).state), ["completed", "completed"]);
  assert.equal(many.link.status.error, null);
});

test("one that never fits together is given up alone", async () => {
  let all = null;
  server = await tasks({ gone: new Set(), streamed: (response) => {
    all = response;
    response.write(chunk("bad", 9, "x", 1) + chunk("good", 0, "good", 2));
  } });
  many = followMany(["bad", "good"], { base: server.base, ...quick });
  const refused = listen(many);
  await until("the refusal", () => refused.length === 1);
  assert.deepEqual(refused, [["damaged", "bad"]]);
  all.write(done("good", 4, 3));
  await until("the end", () => many.link.status.phase === "ended");
  assert.deepEqual([textOf(many.view("good").text), many.link.status.error], ["good", null]);
});

test("nobody hears of a task that is not watched any more", async () => {
  let open;
  server = await tasks({ gone: new Set(), streamed: (response) => (open = response).write(chunk("a", 0, "a", 1) + chunk("b", 0, "b", 2)) });
  many = followMany(["a", "b"], { base: server.base, ...quick });
  const heard = [];
  many.on("change", (id) => heard.push(id));
  await until("both", () => heard.length === 2);
  many.set(["b"]);
  open.write(chunk("a", 7, "hole", 3) + chunk("b", 1, "more", 4));
  await until("more of b", () => many.view("b").text.length === 5);
  assert.deepEqual([heard, server.streams().length], [["a", "b", "b"], 1]);
  many.set(["a", "b"]); // what it missed meanwhile is fetched from the start
  await until("a new stream", () => server.streams().length === 2);
  assert.equal(server.seen.at(-1).headers["last-event-id"], undefined);
});

test("tabs that share a connection: the deleted task is refused to its tab, the other tab's goes on", async () => {
  const gone = new Set();
  let rest = null;
  server = await tasks({ gone, streamed: (response, asked) => {
    if (asked.includes("a")) return response.write(chunk("a", 0, "a", 1) + chunk("b", 0, "b", 2));
    return (rest = response).write(chunk("b", 1, "more", 3));
  } });
  const before = globalThis.fetch;
  globalThis.fetch = (url, options) => before(`${server.base}${url}`, options);
  try {
    const core = new FeedCore();
    const tab = () => ({
      told: 0, no: [], snapshot: () => {}, connection: () => {},
      events(_id, events) { this.told += events.length; },
      refused(id, { code }) { this.no.push(`${id} ${code}`); },
    });
    const [one, other] = [tab(), tab()];
    core.watch("a", one);
    core.watch("b", other);
    await until("both", () => one.told > 0 && other.told > 0);
    gone.add("a");
    core.drop();
    await until("the refusal", () => one.no.length > 0);
    await until("the other's stream", () => rest !== null);
    await until("more for the other", () => other.told > 1);
    assert.deepEqual([one.no, other.no], [["a not-found"], []]); // told once, to whom it concerns
    const looks = server.seen.map(({ url }) => url).filter((url) => url.startsWith("/api/tasks/"));
    assert.deepEqual(looks.sort(), ["/api/tasks/a", "/api/tasks/b"]); // each is looked at once, too
    core.leave(one);
    core.leave(other);
  } finally {
    globalThis.fetch = before;
  }
});

test("a kept view belongs to one task", () => {
  assert.throws(() => followMany(["a", "b"], { view: {} }), /follow\(id, \{ view \}\)/);
});
