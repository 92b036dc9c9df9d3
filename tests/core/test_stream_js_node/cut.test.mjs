// A line that is cut at the worst moments, by an agent that does not help: the client never hangs on it, and leaves
// nothing open.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { follow, textOf } from "../../../unbroken/static/stream.js";
import { frame, until } from "./support.mjs";

let task;
afterEach(() => task?.close());

const quick = { retryMs: 1, maxDelayMs: 5, random: () => 0.5 };
const chunk = (offset, text, id) => ({ type: "chunk", data: { offset, text, progress: 0 }, id });
const done = (length, id) => ({ type: "done", data: { state: "completed", length }, id });

/** An agent that knows no signals: a body stays open and silent after its events, a read of it never settles. */
function deaf(...answers) {
  const agent = { asked: [], cancelled: 0 };
  agent.fetch = async (_url, { headers }) => {
    agent.asked.push(headers["Last-Event-ID"] ?? "");
    const events = answers[Math.min(agent.asked.length, answers.length) - 1];
    const body = new ReadableStream({
      start: (controller) => controller.enqueue(new TextEncoder().encode(events.map((event) => frame(event)).join(""))),
      cancel: () => void (agent.cancelled += 1),
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  };
  return agent;
}

test("a hole that comes with the last bytes is healed, although the cut line never settles", async () => {
  const agent = deaf([chunk(0, "one ", "1-1"), done(9, "1-3")], [chunk(0, "one ", "1-1"), chunk(4, "three", "1-2"), done(9, "1-3")]);
  task = follow("0-x", { fetch: agent.fetch, ...quick });
  await until("the end", () => task.connection.phase === "ended");
  assert.equal(textOf((await task.finished).text), "one three");
  assert.deepEqual(agent.asked, ["", ""]);
  assert.equal(agent.cancelled, 2, "both bodies are let go");
});

test("a stream that never fits together is told, although no cut line ever settles", async () => {
  const agent = deaf([chunk(9, "x", "1-1")]);
  task = follow("0-x", { fetch: agent.fetch, ...quick });
  await until("the end", () => task.connection.phase === "ended");
  await assert.rejects(task.finished, { code: "damaged" });
  await until("all bodies to be let go", () => agent.cancelled === agent.asked.length);
});

test("drop() and silence work with an agent that never answers", async () => {
  let asked = 0;
  task = follow("0-x", { fetch: () => new Promise(() => void (asked += 1)), ...quick });
  await until("the first try", () => asked === 1);
  task.drop();
  await until("the second try", () => asked === 2);
  task.close();
  await task.finished;
  assert.equal(task.connection.phase, "idle");
});
