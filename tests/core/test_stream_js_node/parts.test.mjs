// The pure parts of the page: where a text may be cut, what is told of a task, what an address means.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, connectionWords, duration, percent, plural, roughly } from "../../../unbroken/static/format.js";
import { withOlder } from "../../../unbroken/static/api.js";
import { entryOf, lostIn, presence, reconnectEntry, stretches, tell } from "../../../unbroken/static/history.js";
import { parse } from "../../../unbroken/static/router.js";
import { Listening, silenceAdvice, silenceWords, waitingWords } from "../../../unbroken/static/silence.js";
import { Story } from "../../../unbroken/static/story.js";
import { Splitter } from "../../../unbroken/static/segments.js";
import { INITIAL } from "../../../unbroken/static/stream.js";
import { append } from "../../../unbroken/static/stream/rope.js";
import { chance } from "./support.mjs";

function partsOf(pieces) {
  const parts = [];
  for (const { text, starts } of pieces) {
    if (starts || parts.length === 0) parts.push("");
    parts[parts.length - 1] += text;
  }
  return parts;
}

const PARAGRAPH = `${"A sentence of some length stands here. ".repeat(12).trim()}\n\n`;
const BLOCKS = [PARAGRAPH, PARAGRAPH, "## A heading\n\n", "- one\n\n- two\n\n  more of two\n\n", "1. a\n2. b\n\n",
  `\`\`\`js\nlet a = 1;\n\n${"let b = 2;\n".repeat(90)}\n\`\`\`\n\n`, "> quote\n\n", "| a | b |\n| - | - |\n\n", "文字\n\n"];

test("parts do not depend on how the text came, hold all of it, and never cut a fence or a list", () => {
  for (let seed = 1; seed <= 40; seed += 1) {
    const random = chance(seed);
    const text = Array.from({ length: 40 }, () => random.pick(BLOCKS)).join("");
    const whole = partsOf(new Splitter().push(text));
    const splitter = new Splitter();
    const pieces = [];
    for (let at = 0; at < text.length; ) {
      const size = 1 + random.below(90);
      pieces.push(...splitter.push(text.slice(at, at + size)));
      at += size;
    }
    assert.equal(whole.join(""), text);
    assert.deepEqual(partsOf(pieces).join(""), text);
    assert.ok(whole.length > 2);
    for (const part of [...whole, ...partsOf(pieces)]) {
      assert.equal((part.match(/^```/gm) ?? []).length % 2, 0, `a fence was cut, seed ${seed}`);
    }
    const belowText = (parts) => parts.filter((_part, i) => i > 0 && !/^#.*\n+$/.test(parts[i - 1])); // a heading holds nothing
    for (const part of [...belowText(whole), ...belowText(partsOf(pieces))]) {
      assert.doesNotMatch(part, /^(- |\d\.| {2}|> |\|)/, `a part begins inside of something, seed ${seed}`);
    }
  }
});

test("a text without line ends does not become one endless part", () => {
  const parts = partsOf(new Splitter().push("字".repeat(100_000)));
  const splitter = new Splitter();
  const slow = [];
  for (let i = 0; i < 4_000; i += 1) slow.push(...splitter.push("字".repeat(25)));
  assert.equal(parts.join("").length, 100_000);
  assert.ok(partsOf(slow).length >= 10);
});

test("points of the pieces add up to the code points of the text", () => {
  const pieces = new Splitter().push(`${PARAGRAPH}👩‍🚀 and more\n\n`.repeat(20));
  assert.equal(pieces.reduce((sum, { points }) => sum + points, 0), [...`${PARAGRAPH}👩‍🚀 and more\n\n`.repeat(20)].length);
});

test("a heading is finished when something comes below it, and needs no long part around it", () => {
  const heads = (text) => partsOf(new Splitter().push(text)).filter((part) => /^#/.test(part));
  assert.deepEqual(heads(`## First\n\n${PARAGRAPH}### Second\n- a list\n- of two\n`), ["## First\n\n", "### Second\n"]);
  assert.deepEqual(heads(`# Text\n\n# Text\n\nshort`), ["# Text\n\n", "# Text\n\n"]);
  assert.deepEqual(partsOf(new Splitter().push("a line\n\n## Short section\n\nanother")).length, 1);
  assert.deepEqual(partsOf(new Splitter().push("```\n# no heading\n\nb\n```\n")).length, 1);
  assert.deepEqual(partsOf(new Splitter().push("#hashtag\n\nand more\n\n")).length, 1);
});

const at = (second) => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
const EVENTS = [
  { type: "status", id: "1-0", data: { state: "pending", attempt: 0, at: at(0) } },
  { type: "status", id: "1-1", data: { state: "processing", attempt: 1, at: at(1) } },
  { type: "checkpoint", id: "1-2", data: { offset: 9, progress: 0.1, saved_at: at(2) } },
  { type: "checkpoint", id: "1-3", data: { offset: 19, progress: 0.2, saved_at: at(4) } },
  { type: "status", id: "1-4", data: { state: "paused", attempt: 1, reason: "worker_lost", at: at(6) } },
  { type: "status", id: "1-5", data: { state: "recovering", attempt: 1, at: at(8) } },
  { type: "status", id: "2-6", data: { state: "processing", attempt: 2, at: at(9) } },
  { type: "done", id: "2-7", data: { state: "completed", finished_at: at(12) } },
];

const add = (list, event) => {
  const entry = entryOf(event, 0); // null: not worth a line
  return entry ? tell(list, entry) : list;
};

test("a story is told once, however often it is replayed, and in order", () => {
  const story = (events) => events.reduce(add, []);
  const once = story(EVENTS);
  assert.deepEqual(once.map(({ title }) => title), ["Started", "Saved 2 times", "Stopped", "Going to continue", "Attempt 2 continues", "Completed"]);
  assert.deepEqual(story([...EVENTS, ...EVENTS]), once);
  const late = EVENTS.filter((_event, i) => i > 3).reduce(add, once);
  assert.deepEqual(late, once);
});

test("a worker that was lost stays told, once, after the task was recovered", () => {
  const again = EVENTS.map((event) => ({ ...event, data: { ...event.data, at: at(40) } })); // by another clock
  assert.equal(lostIn([...EVENTS, ...again].reduce(add, [])), 1);
  const second = { type: "status", id: "1-9", data: { state: "recovering", attempt: 2, reason: "worker_lost", at: at(50) } };
  assert.equal(lostIn([...EVENTS, second].reduce(add, [])), 2);
  assert.equal(lostIn(EVENTS.filter(({ data }) => data.reason !== "worker_lost").reduce(add, [])), 0);
});

test("the drawing shows running, lost and waiting stretches", () => {
  const story = EVENTS.reduce(add, []);
  const parts = stretches(story, Date.parse(at(0)), Date.parse(at(12)));
  assert.deepEqual(parts.map(({ how }) => how), ["wait", "run", "lost", "wait", "run"]);
  assert.ok(parts.every(({ from, to }, i) => i === 0 || from === parts[i - 1].to));
});

test("words", () => {
  const entry = reconnectEntry({ at: 5, downMs: 1_400, why: "dropped", frames: 3, events: 1_200 }, 5);
  assert.match(entry.detail, /1\.4 s because you dropped it; 1,200 events replayed/);
  assert.match(reconnectEntry({ at: 5, downMs: 9, why: "http-502", frames: 0, events: 0 }, 5).detail, /not ready; nothing was missed/);
  const status = { phase: "reconnecting", retryAt: 3_200, reconnects: 0, replayed: 0, last: null, error: null };
  assert.equal(connectionWords(status, { now: 1_000 }), "Reconnecting in 3 s");
  assert.equal(connectionWords({ ...status, phase: "offline" }, { now: 1_000 }), "Offline, trying again in 3 s");
  assert.deepEqual([percent(0.999), percent(1), plural(1, "event"), plural(2_000, "event")], ["99 %", "100 %", "1 event", "2,000 events"]);
  assert.deepEqual([duration(1_234), duration(65_000), roughly(8.2), roughly(600)], ["1.2 s", "1 min 5 s", "8 s", "10 min"]);
});

test("the pill says how a task ended, and never that a failed one is complete", () => {
  const ended = { phase: "ended", retryAt: null, reconnects: 0, replayed: 0, last: null, error: null };
  const words = (state) => connectionWords(ended, { state });
  assert.deepEqual(["completed", "failed", "cancelled", ""].map(words), ["Complete", "Failed", "Cancelled", "Ended"]);
  assert.equal(connectionWords({ ...ended, phase: "caught-up" }, { live: "Live, paused" }), "Live, paused");
  assert.equal(connectionWords({ ...ended, error: { status: 404, code: "", message: "" } }, { state: "" }), "Not connected");
  assert.deepEqual([ago(1_000, 2_000), ago(1_000, 62_000), ago(null)], ["just now", "1 min ago", ""]);
});

test("silence is told only of a task that is being written, from the last thing that was heard", () => {
  const t0 = Date.parse(at(0));
  const task = { unit: "tokens", stale: false, updated_at: at(1) };
  const chunk = { type: "chunk", data: { offset: 0, text: "a" } };
  const listening = new Listening();
  assert.equal(listening.silence("processing", task, t0 + 9_000), null, "nothing is known yet");
  listening.hear([EVENTS[1]], true, t0 + 60_000); // a replay is not news: what it tells is as old as it says
  listening.look(task);
  assert.equal(listening.silence("processing", task, t0 + 3_500), null);
  assert.deepEqual(listening.silence("processing", task, t0 + 7_000), { ms: 6_000, began: false, stale: false, unit: "tokens" });
  assert.equal(listening.silence("paused", task, t0 + 7_000), null);
  listening.hear([chunk], false, t0 + 8_000);
  const quiet = listening.silence("processing", { ...task, stale: true }, t0 + 14_400);
  assert.deepEqual(quiet, { ms: 6_400, began: true, stale: true, unit: "tokens" });
  assert.equal(silenceWords(quiet), "Nothing heard from the worker for 6 s");
  assert.equal(silenceWords({ ...quiet, stale: false }), "Nothing heard from the model for 6 s");
  assert.equal(silenceWords({ ...quiet, stale: false, began: false }), "The model has not begun, for 6 s");
  assert.match(silenceAdvice(quiet, "manual").join(""), /pauses.*Recover/);
  assert.match(silenceAdvice({ ...quiet, stale: false }, "auto").join(""), /connection is fine.*another worker/);
  listening.hear([EVENTS[6]], false, t0 + 15_000); // another attempt has to begin first
  assert.equal(listening.silence("processing", task, t0 + 19_000).began, false);
  const late = new Listening(); // of somebody who comes when it is all written: whoever wrote has begun
  late.look(task);
  late.hear([], true, t0, { ...INITIAL, text: append(INITIAL.text, "words") });
  assert.equal(late.silence("processing", task, t0 + 9_000).began, true);
  const items = { ...task, unit: "items" };
  assert.equal(listening.silence("processing", items, t0 + 24_000), null, "an item takes its time");
  assert.equal(silenceWords({ ms: 12_000, began: true, stale: false, unit: "items" }), "No item finished for 12 s");
  assert.equal(waitingWords("pending", null), "Live, waiting for a worker");
  assert.equal(waitingWords("processing", null), "");
});

test("when this viewer was there, and when not", () => {
  const back = (at, downMs) => reconnectEntry({ at, downMs, why: "dropped", frames: 1, events: 1 }, at);
  const list = [back(900, 100), back(2_000, 500), back(4_000, 1_000)];
  assert.deepEqual(presence(list, 1_000, 5_000, null), [
    { from: 1_000, to: 1_500, how: "here" }, { from: 1_500, to: 2_000, how: "away" },
    { from: 2_000, to: 3_000, how: "here" }, { from: 3_000, to: 4_000, how: "away" }, { from: 4_000, to: 5_000, how: "here" }]);
  assert.deepEqual(presence([], 1_000, 3_000, 2_000), [{ from: 1_000, to: 2_000, how: "here" }, { from: 2_000, to: 3_000, how: "away" }]);
  assert.deepEqual(presence([], 9_000, 3_000, null), [], "who came after the end was not there");
});

test("addresses", () => {
  assert.deepEqual(parse("#/tasks/0-a%2Fb"), { name: "task", id: "0-a/b" });
  assert.deepEqual(parse("#/tasks/%"), { name: "task", id: "%" });
  assert.deepEqual(parse("#/dead-letters/text%3Aboom"), { name: "dead-letters", id: "text:boom" });
  for (const hash of ["", "#", "#/", "#/tasks/", "#/nowhere"]) assert.equal(parse(hash).name, "inbox");
});

test("newer tasks push nothing out of a list of which more was loaded", () => {
  const tasks = Array.from({ length: 8 }, (_none, i) => ({ task_id: `t${i}`, created_at: at(20 - i) }));
  assert.deepEqual(withOlder(tasks.slice(0, 3), tasks), tasks);
  const newer = [{ task_id: "n1", created_at: at(30) }, { task_id: "n0", created_at: at(29) }];
  assert.deepEqual(withOlder([...newer, tasks[0]], tasks), [...newer, ...tasks]);
  assert.deepEqual(withOlder([tasks[0], tasks[2], tasks[3]], tasks), tasks.filter(({ task_id }) => task_id !== "t1"));
  assert.deepEqual(withOlder([], tasks), []);
});

test("an end that does not say when it was is told at the time of the task, or of what followed it", () => {
  const status = (state, second, attempt) => ({ id: `1-${second}`, event: "status", data: { state, attempt, at: at(second) } });
  const failed = { id: "1-3", event: "failed", data: { state: "failed", error: { message: "no" } } };
  const task = { task_id: "t", created_at: at(0), finished_at: at(40) };
  const told = (items) => {
    const story = new Story("t", task);
    story.recall(items);
    return story.list.filter(({ mark }) => mark === "bad").map((entry) => new Date(entry.at).toISOString());
  };
  assert.deepEqual(told([status("processing", 1, 1), failed]), [at(40)]);
  assert.deepEqual(told([status("processing", 1, 1), failed, status("recovering", 9, 1)]), [at(9)]);
  assert.deepEqual(told([status("processing", 1, 1), { id: "1-4", event: "cancelled", data: { state: "cancelled" } }]), [at(40)]);
});
