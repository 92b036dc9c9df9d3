// @ts-check
/**
 * A text that only ever grows at its end or is cut, kept as an array of blocks, so that a chunk costs as much as the
 * chunk, not as much as the text. Ropes are values: every operation returns a new one that shares the old blocks.
 *
 * All positions are Unicode code points, as on the wire; JavaScript strings count UTF-16 units, so an emoji is one
 * point and two units.
 *
 * Where a block ends depends on the text alone (a line end after SOFT points, or HARD points), never on how the text
 * was cut into chunks: two viewers with the same text hold equal ropes.
 *
 * @typedef {{start: number, points: number, text: string}} Block
 * @typedef {{blocks: readonly Block[], length: number}} Rope
 */

export const SOFT = 1024;
export const HARD = 8192;

/** @type {Rope} */
export const EMPTY = Object.freeze({ blocks: Object.freeze([]), length: 0 });

/** @param {string} text @param {number} i @returns {1 | 2} units of the code point at unit i */
function width(text, i) {
  const code = text.charCodeAt(i);
  if (code < 0xd800 || code > 0xdbff || i + 1 >= text.length) return 1;
  const next = text.charCodeAt(i + 1);
  return next >= 0xdc00 && next <= 0xdfff ? 2 : 1;
}

/** The number of code points of a string. @param {string} text */
export function pointsOf(text) {
  let points = 0;
  for (let i = 0; i < text.length; i += width(text, i)) points += 1;
  return points;
}

/** The unit at which code point `points` of `text` begins. @param {string} text @param {number} points */
export function unitAt(text, points) {
  let i = 0;
  for (let left = points; left > 0 && i < text.length; left -= 1) i += width(text, i);
  return i;
}

/** @param {Block} block */
function isFull(block) {
  return block.points >= HARD || (block.points >= SOFT && block.text.charCodeAt(block.text.length - 1) === 10);
}

/** @param {Rope} rope @param {string} text @returns {Rope} */
export function append(rope, text) {
  if (text === "") return rope;
  const blocks = rope.blocks.slice();
  const last = blocks.at(-1);
  /** @type {Block} */
  let open = { start: rope.length, points: 0, text: "" };
  if (last && !isFull(last)) {
    blocks.pop();
    open = { ...last };
  }
  let from = 0;
  for (let i = 0; i < text.length; ) {
    const code = text.charCodeAt(i);
    i += width(text, i);
    open.points += 1;
    if (open.points < HARD && (code !== 10 || open.points < SOFT)) continue;
    open.text += text.slice(from, i);
    from = i;
    blocks.push(open);
    open = { start: open.start + open.points, points: 0, text: "" };
  }
  open.text += text.slice(from);
  if (open.points > 0) blocks.push(open);
  return { blocks, length: open.start + open.points };
}

/** The block that holds point `at`, by bisection. @param {Rope} rope @param {number} at */
function blockAt(rope, at) {
  let low = 0;
  let high = rope.blocks.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (rope.blocks[middle].start <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The first `length` code points. @param {Rope} rope @param {number} length @returns {Rope} */
export function cut(rope, length) {
  if (length >= rope.length) return rope;
  if (length <= 0) return EMPTY;
  const at = blockAt(rope, length);
  const blocks = rope.blocks.slice(0, at);
  const block = rope.blocks[at];
  const points = length - block.start;
  if (points > 0) blocks.push({ start: block.start, points, text: block.text.slice(0, unitAt(block.text, points)) });
  return { blocks, length };
}

/** The whole text. Costs as much as the text: for copying and saving. @param {Rope} rope */
export function textOf(rope) {
  return rope.blocks.map((block) => block.text).join("");
}

/** Code points `from` (included) to `to` (not included). @param {Rope} rope @param {number} from @param {number} [to] */
export function slice(rope, from, to = rope.length) {
  if (from >= to || from >= rope.length) return "";
  const parts = [];
  for (let i = blockAt(rope, from); i < rope.blocks.length && rope.blocks[i].start < to; i += 1) {
    const { start, points, text } = rope.blocks[i];
    const left = from > start ? unitAt(text, from - start) : 0;
    const right = to < start + points ? unitAt(text, to - start) : text.length;
    parts.push(text.slice(left, right));
  }
  return parts.join("");
}

/**
 * How many code points two ropes have in common at their start, found without reading the text they share: blocks of
 * a rope that grew are the same objects, only the last one differs.
 * @param {Rope} a @param {Rope} b
 */
export function commonLength(a, b) {
  let common = 0;
  for (let i = 0; i < Math.min(a.blocks.length, b.blocks.length); i += 1) {
    const [left, right] = [a.blocks[i], b.blocks[i]];
    if (left === right || left.text === right.text) {
      common += left.points;
      continue;
    }
    let units = 0;
    while (units < left.text.length && units < right.text.length) {
      const step = width(left.text, units);
      if (left.text.slice(units, units + step) !== right.text.slice(units, units + step)) break;
      units += step;
      common += 1;
    }
    break;
  }
  return common;
}
