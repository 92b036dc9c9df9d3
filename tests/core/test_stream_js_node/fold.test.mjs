import assert from "node:assert/strict";
import { test } from "node:test";
import { INITIAL, commonLength, fold, isTerminal, pointsOf, slice, textOf } from "../../../unbroken/static/stream.js";
import { EMPTY, HARD, SOFT, append, cut } from "../../../unbroken/static/stream/rope.js";
import { after, chance, folded, randomLog, randomText } from "./support.mjs";

const foldAll = (events, view = INITIAL) => events.reduce(fold, view);

test("a rope is a list of code points, whatever is done to it", () => {
  for (let seed = 1; seed <= 60; seed += 1) {
    const random = chance(seed);
    let rope = EMPTY;
    let model = [];
    for (let i = 0; i < 60; i += 1) {
      if (random.below(4) === 0) {
        const length = random.below(model.length + 2);
        rope = cut(rope, length);
        model = model.slice(0, length);
      } else {
        const text = randomText(random, 700);
        rope = append(rope, text);
        model.push(...text);
      }
    }
    assert.equal(rope.length, model.length);
    assert.equal(textOf(rope), model.join(""));
    const [from, to] = [random.below(model.length + 1), random.below(model.length + 1)].sort((a, b) => a - b);
    assert.equal(slice(rope, from, to), model.slice(from, to).join(""));
    assert.deepEqual(rope, append(EMPTY, model.join("")), `blocks depend on how the text came, seed ${seed}`);
    assert.equal(pointsOf(model.join("")), model.length);
  }
});

test("blocks are bounded, and a chunk leaves all earlier blocks as they are", () => {
  let rope = append(EMPTY, "字".repeat(100_000));
  assert.ok(rope.blocks.every((block) => block.points <= HARD));
  rope = append(rope, `${"line\n".repeat(20_000)}`);
  const next = append(rope, "more");
  assert.ok(rope.blocks.slice(0, -1).every((block, i) => next.blocks[i] === block));
  assert.ok(rope.blocks.length < 200_000 / SOFT + 20);
});

test("what two ropes have in common", () => {
  const rope = append(EMPTY, "line of text\n".repeat(3_000));
  assert.equal(commonLength(rope, append(rope, "👩‍🚀")), rope.length);
  assert.equal(commonLength(rope, cut(rope, 2_500)), 2_500);
  assert.equal(commonLength(append(EMPTY, "a👩b"), append(EMPTY, "a👨b")), 1);
  assert.equal(commonLength(append(cut(rope, 2_000), "X".repeat(900)), rope), 2_000);
});

test("any cut, any repeat, any replay gives the same state", () => {
  for (let seed = 1; seed <= 300; seed += 1) {
    const random = chance(seed);
    const { events, text } = randomLog(random);
    const undisturbed = foldAll(events);
    assert.equal(textOf(undisturbed.text), text);
    let view = INITIAL;
    while (!isTerminal(view)) {
      const cursor = random.below(5) === 0 ? "" : view.lastEventId;
      const rest = after(events, cursor);
      const replay = random.below(2) === 0 ? rest : folded(rest);
      const part = replay.slice(0, 1 + random.below(replay.length));
      for (const event of part) {
        view = fold(view, event);
        if (random.below(6) === 0) view = fold(view, event);
      }
    }
    assert.deepEqual(view, undisturbed, `seed ${seed}`);
  }
});

test("a chunk with a smaller offset takes the text back, one beyond the end tells that something was missed", () => {
  const start = fold(INITIAL, { type: "chunk", data: { offset: 0, text: "a👩b", progress: 0.1 }, id: "1-1" });
  const back = fold(start, { type: "chunk", data: { offset: 2, text: "", progress: 0.1 }, id: "1-2" });
  assert.equal(textOf(back.text), "a👩");
  const hole = fold(start, { type: "chunk", data: { offset: 4, text: "z", progress: 0.1 }, id: "1-2" });
  assert.equal(hole.missed, true);
  assert.equal(textOf(hole.text), "a👩b");
  assert.equal(fold(hole, { type: "chunk", data: { offset: 0, text: "all", progress: 1 }, id: "1-9" }).missed, false);
  const short = fold(start, { type: "done", data: { state: "completed", length: 9 }, id: "1-3" });
  assert.equal(short.missed, true, "an end that is longer than the text is a hole too");
});

test("a folded view is never changed in place", () => {
  const { events } = randomLog(chance(5));
  let view = INITIAL;
  for (const event of events) {
    const before = JSON.stringify(view);
    const next = fold(view, event);
    assert.equal(JSON.stringify(view), before);
    view = next;
  }
});

test("a replayed dead letter lives again, and unknown events only move the cursor", () => {
  const dead = foldAll([{ type: "failed", data: { state: "failed", error: { code: "x", message: "y" } }, id: "1-1" }]);
  assert.ok(isTerminal(dead));
  const alive = fold(dead, { type: "status", data: { state: "recovering", attempt: 3 }, id: "1-2" });
  assert.deepEqual([alive.state, alive.error], ["recovering", null]);
  assert.deepEqual(fold(alive, { type: "constructor", data: {}, id: "1-3" }), { ...alive, lastEventId: "1-3" });
});

test("a megabyte in small chunks takes no whole-text work", () => {
  const most = { blocks: 0 };
  let view = INITIAL;
  const spy = (rope) => (most.blocks = Math.max(most.blocks, ...rope.blocks.map((block) => block.points)));
  for (let offset = 0; offset < 1_000_000; offset += 50) {
    const text = `${"lorem ipsum ".repeat(5).slice(0, 49)}\n`;
    view = fold(view, { type: "chunk", data: { offset, text, progress: 0 }, id: `1-${offset}` });
  }
  spy(view.text);
  assert.equal(view.text.length, 1_000_000);
  assert.ok(most.blocks <= HARD);
});

test("what is completed is done to its last part, as the task object says", () => {
  const events = [
    { type: "progress", data: { progress: 0.945, done: 378, total: 400, unit: "tokens" }, id: "1-1" },
    { type: "done", data: { state: "completed", length: 0 }, id: "1-2" },
  ];
  const { progress, done, total } = foldAll(events);
  assert.deepEqual([progress, done, total], [1, 400, 400]);
  const counted = foldAll([{ ...events[0], data: { ...events[0].data, total: null } }, events[1]]);
  assert.deepEqual([counted.done, counted.total], [378, null]);
});

test("the end of a kind of items says nothing about its text, however short that is", () => {
  const text = { type: "chunk", data: { offset: 0, text: "sorted", progress: 0 }, id: "1-1" };
  const item = { type: "item", data: { index: 0, ok: true, result: { name: "first" } }, id: "1-2" };
  const counts = { type: "progress", data: { progress: 0, done: 0, total: 0, unit: "items" }, id: "1-2" };
  const done = { type: "done", data: { state: "completed", length: 87 }, id: "1-3" };
  assert.equal(foldAll([text, item, done]).missed, false);
  assert.equal(foldAll([text, counts, done]).missed, false, "no item at all is a result, too");
  assert.equal(foldAll([text, { ...counts, data: { ...counts.data, unit: "steps" } }, done]).missed, true);
});
