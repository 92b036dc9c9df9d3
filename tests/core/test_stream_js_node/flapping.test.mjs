// Hours against a server that comes and goes, on a clock of our own: requests stay few, connections never pile up, and
// whoever is left alone on a wall is live again after a deployment.
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { FeedCore } from "../../../unbroken/static/feed-core.js";
import { follow, textOf } from "../../../unbroken/static/stream.js";
import { after, chance, frame } from "./support.mjs";

const MINUTE = 60_000;
const ID = "0-a";

beforeEach(() => mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"], now: 1_700_000_000_000 }));
afterEach(() => mock.timers.reset());

/** Time goes on in small steps; between them everything that waits for a promise has its turn. */
async function pass(ms, each = () => {}, step = 100) {
  for (let gone = 0; gone < ms; gone += step) {
    mock.timers.tick(step);
    each();
    for (let i = 0; i < 2; i += 1) await new Promise((resolve) => setImmediate(resolve));
  }
}

/** A server without a network: `mode` is what it does with a request, and to the open connections when it changes. */
class Server {
  mode = "up";
  events = [];
  requests = []; // when
  open = new Set();
  most = 0;
  #points = 0;

  /** One more piece of text, sent to whoever listens. */
  write(text, type = "chunk", more = {}) {
    const data = { task_id: ID, offset: this.#points, text, progress: 0, ...more };
    this.#points += [...text].length;
    const event = { type, data, id: `1700000000000-${this.events.length + 1}` };
    this.events.push(event);
    for (const one of this.open) one.send(frame(event));
  }

  end() {
    this.write("", "done", { state: "completed", length: this.#points, sha256: "x", result: "/r" });
    for (const one of [...this.open]) one.close();
  }

  turn(mode) {
    this.mode = mode;
    if (mode !== "up") for (const one of [...this.open]) one.break();
  }

  get text() {
    return this.events.map(({ data }) => data.text).join("");
  }

  get = async (_url, { headers, signal }) => {
    this.requests.push(Date.now());
    if (this.mode === "refused") throw new TypeError("fetch failed");
    if (this.mode === "502") return new Response("", { status: 502 });
    if (this.mode === "swallowed") return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const rest = after(this.events, headers["Last-Event-ID"] ?? "");
    if (rest.length === 0 && this.events.at(-1)?.type === "done") return new Response(null, { status: 204 });
    const stream = new ReadableStream({ start: (controller) => this.#serve(controller, signal, rest) });
    return new Response(stream, { headers: { "Content-Type": "text/event-stream" } });
  };

  #serve(controller, signal, rest) {
    const bytes = (text) => new TextEncoder().encode(text);
    const gone = (how) => () => this.open.delete(one) && how();
    const one = {
      send: (text) => controller.enqueue(bytes(text)),
      close: gone(() => controller.close()),
      break: gone(() => controller.error(new TypeError("terminated"))),
    };
    this.open.add(one);
    this.most = Math.max(this.most, this.open.size);
    signal.addEventListener("abort", gone(() => controller.error(signal.reason)));
    one.send(`retry: 1000\n\n${rest.map((event) => frame(event)).join("")}`);
    if (this.mode === "broken") one.break();
    else if (rest.at(-1)?.type === "done") one.close();
  }
}

const options = (server, seed) => ({ fetch: server.get, random: chance(seed).next });

test("ten minutes against a flapping server: one connection at a time, few requests, nothing lost", async () => {
  for (const seed of [1, 2, 3]) {
    const random = chance(seed);
    const server = new Server();
    server.write("first ");
    const task = follow(ID, options(server, seed));
    let turns = 0;
    let next = Date.now();
    await pass(10 * MINUTE, () => {
      if (server.mode === "up" && random.below(10) === 0) server.write(`${server.events.length} `);
      if (Date.now() < next) return;
      server.turn(random.pick(["up", "up", "refused", "502", "swallowed", "broken"]));
      next = Date.now() + 100 + random.below(8_000);
      turns += 1;
    });
    assert.ok(turns > 100, `${turns}`);
    assert.equal(server.most, 1, "never two connections at once");
    const busiest = Math.max(...server.requests.map((at) => server.requests.filter((other) => other >= at && other < at + 10_000).length));
    assert.ok(server.requests.length < 2 * turns, `${server.requests.length} requests in ${turns} turns`);
    assert.ok(busiest <= 8, `${busiest} requests within ten seconds`);
    server.turn("up");
    server.end();
    await pass(MINUTE);
    assert.equal(textOf(task.view.text), server.text, `seed ${seed}`);
    assert.equal(task.connection.phase, "ended");
    task.close();
  }
});

test("an hour in which every answer breaks at once does not become a storm", async () => {
  for (const mode of ["broken", "refused", "502"]) {
    const server = new Server();
    server.write("a ");
    const task = follow(ID, options(server, 5));
    server.turn(mode);
    await pass(60 * MINUTE, () => {}, 500);
    assert.ok(server.requests.length < 330, `${mode}: ${server.requests.length} requests`); // one in about 16 s
    assert.ok(server.requests.length > 150, `${mode}: it goes on trying`);
    assert.ok(server.most <= 1);
    task.close();
  }
});

test("alone on a wall: live again after a deployment that took half an hour, without anybody's hand", async () => {
  const server = new Server();
  server.write("before ");
  const task = follow(ID, options(server, 7));
  await pass(2_000);
  assert.equal(task.connection.phase, "caught-up");
  server.turn("refused");
  await pass(20 * MINUTE, () => {}, 500);
  assert.equal(task.connection.phase, "reconnecting");
  server.turn("502"); // the proxy is back before the server
  await pass(10 * MINUTE, () => {}, 500);
  server.turn("up");
  server.write("after ");
  await pass(32_000); // the longest wait, and the server's own retry
  assert.equal(textOf(task.view.text), "before after ");
  assert.equal(task.connection.phase, "caught-up");
  assert.equal(task.connection.reconnects, 1);
  server.end();
  await pass(1_000);
  assert.equal(task.connection.phase, "ended");
  task.close();
});

test("eight tabs that share a connection share it through a flapping server, too", async () => {
  const server = new Server();
  const before = globalThis.fetch;
  globalThis.fetch = server.get;
  try {
    const core = new FeedCore();
    server.write("x ");
    const ears = Array.from({ length: 8 }, () => ({
      told: 0, snapshot: () => {}, refused: () => {}, connection: () => {},
      events(_id, events) { this.told += events.length; },
    }));
    ears.forEach((ear) => core.watch(ID, ear));
    const random = chance(11);
    for (let i = 0; i < 40; i += 1) {
      server.turn(random.pick(["up", "refused", "broken"]));
      if (random.below(3) === 0) core.wake();
      await pass(500 + random.below(4_000));
    }
    assert.equal(server.most, 1, "one connection for all of them");
    server.turn("up");
    server.write("y ");
    await pass(35_000);
    assert.equal(server.open.size, 1);
    assert.deepEqual(ears.map((ear) => ear.told), ears.map(() => 2));
    ears.forEach((ear) => core.leave(ear));
    await pass(1_000);
    assert.equal(server.open.size, 0, "nobody looks, nobody holds a connection");
  } finally {
    globalThis.fetch = before;
  }
});
