import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../../../unbroken/static/stream.js";
import { MAX_LINE } from "../../../unbroken/static/stream/sse.js";
import { chance, randomText } from "./support.mjs";

const bytes = (text) => new TextEncoder().encode(text);
const parse = (text) => new SseParser().push(bytes(text));

test("one event, with what the server sends", () => {
  assert.deepEqual(parse('retry: 900\n\nid: 17-1\nevent: chunk\ndata: {"offset":0}\n\n'), [
    { type: "chunk", data: '{"offset":0}', id: "17-1" },
  ]);
});

test("any cut of the bytes gives the same events", () => {
  for (let seed = 1; seed <= 200; seed += 1) {
    const random = chance(seed);
    const end = random.pick(["\n", "\r", "\r\n"]);
    const lines = ["﻿: hello", ""];
    for (let i = 0; i < 12; i += 1) {
      if (random.below(4) === 0) lines.push(":");
      lines.push(`id: ${seed}-${i}`, `event: e${i % 3}`);
      for (const line of randomText(random, 30).split("\n")) lines.push(`data: ${line}`);
      lines.push("");
    }
    const whole = bytes(lines.join(end) + end);
    const expected = new SseParser().push(whole);
    assert.equal(expected.length, 12, `seed ${seed}`);
    const parser = new SseParser();
    const got = [];
    for (let at = 0; at < whole.length; ) {
      const size = 1 + random.below(7);
      got.push(...parser.push(whole.subarray(at, at + size)));
      at += size;
    }
    assert.deepEqual(got, expected, `seed ${seed}`);
  }
});

test("every single byte alone, with CRLF", () => {
  const parser = new SseParser();
  const got = [...bytes("id: 1-1\r\ndata: ü👩‍🚀\r\n\r\ndata: b\r\n\r\n")].flatMap((byte) => parser.push(Uint8Array.of(byte)));
  assert.deepEqual(got, [
    { type: "message", data: "ü👩‍🚀", id: "1-1" },
    { type: "message", data: "b", id: "1-1" },
  ]);
});

test("the corners of the standard", () => {
  assert.deepEqual(parse("data\n\ndata:\ndata:\n\n").map((event) => event.data), ["", "\n"]);
  assert.deepEqual(parse("event: x\n\n: c\nfoo: bar\ndata:  two\n\n"), [{ type: "message", data: " two", id: "" }]);
  assert.deepEqual(parse("id: 1\0\ndata: a\n\nid: 2\n\ndata: b\n\ndata: unfinished\n").map((event) => event.id), ["", "2"]);
  const parser = new SseParser("9-9");
  assert.equal(parser.push(bytes("retry: soon\nretry: 250\ndata: a\n\n:\n:\n"))[0].id, "9-9");
  assert.equal(parser.retry, 250);
  assert.equal(parser.comments, 2);
});

test("a line without an end does not fill the memory", () => {
  const parser = new SseParser();
  const piece = new Uint8Array(1024 * 1024).fill(120);
  assert.throws(() => {
    for (let sent = 0; sent <= MAX_LINE + piece.length; sent += piece.length) parser.push(piece);
  }, RangeError);
});

test("an event that was cut off does not move the cursor", () => {
  const parser = new SseParser();
  parser.push(bytes("id: 1-1\ndata: a\n\nid: 1-2\nevent: chunk\n"));
  assert.equal(parser.lastEventId, "1-1");
  parser.push(bytes("data: b\n\n"));
  assert.equal(parser.lastEventId, "1-2");
});

test("an event without an end does not fill the memory either", () => {
  const parser = new SseParser();
  const piece = bytes(`data: ${"x".repeat(1024 * 1024)}\n`);
  assert.throws(() => {
    for (let sent = 0; sent <= MAX_LINE + piece.length; sent += piece.length) parser.push(piece);
  }, RangeError);
});
