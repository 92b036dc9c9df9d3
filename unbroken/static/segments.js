// @ts-check
/**
 * Where a growing Markdown text may be cut into parts that can be rendered one by one: after a blank line, outside of
 * code fences, lists and indented code, once a part is long enough. A heading is a part of its own, so that it is not
 * shown raw for as long as what stands below it is being written. Looks at each line once. Pure.
 *
 * A text without line ends is cut by force, since one endless paragraph would be laid out anew for every token.
 */

import { pointsOf } from "./stream/rope.js";

const ENOUGH = 700; // code points of a part
const HEADED = 200; // of a part before a heading: short sections are not worth a part each
const FORCED = 8_000; // of a line without end
const MONSTROUS = 30_000; // of a part, even inside a fence
const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^#{1,6}[ \t]/;
const INSIDE = /^(?: |\t|[-*+] |[-*+]$|\d|\||>)/; // may belong to what is above the blank line

/** @typedef {{text: string, points: number, starts: boolean}} Piece  `starts`: a new part begins with it */

export class Splitter {
  #line = ""; // the unfinished last line
  #points = 0; // of the part so far, without the unfinished line
  #fence = "";
  #blank = false;
  #headed = false; // the part is a heading so far, and blank lines

  /** Takes more text and returns all of it, in pieces. @param {string} text @returns {Piece[]} */
  push(text) {
    /** @type {Piece[]} */
    const out = [];
    for (let from = 0; from < text.length; ) {
      const end = text.indexOf("\n", from);
      const piece = end < 0 ? text.slice(from) : text.slice(from, end + 1);
      from += piece.length;
      put(out, piece, this.#line === "" && this.#startsPart(piece));
      this.#line += piece;
      if (end >= 0) this.#closeLine();
      else if (this.#line.length > FORCED) this.#cutLine();
    }
    return out;
  }

  /** Whether a part begins here. The first characters of a line decide; where one character is not enough to tell
   * ("1" may become "1. item"), the answer is no and the next blank line is as good. @param {string} piece */
  #startsPart(piece) {
    const below = this.#headed && !piece.startsWith("\n");
    const clean = this.#blank && this.#fence === "" && !INSIDE.test(piece);
    const enough = piece.startsWith("#") ? HEADED : ENOUGH;
    if (!below && this.#points < (clean ? enough : MONSTROUS)) return false;
    this.#points = 0;
    this.#headed = false;
    return true;
  }

  #cutLine() {
    this.#points += pointsOf(this.#line);
    this.#line = "";
    this.#blank = true;
  }

  #closeLine() {
    const line = this.#line;
    this.#line = "";
    if (!this.#headed) this.#headed = this.#points === 0 && this.#fence === "" && HEADING.test(line);
    this.#points += pointsOf(line);
    const fence = FENCE.exec(line)?.[1] ?? "";
    if (this.#fence === "") this.#fence = fence;
    else if (fence.startsWith(this.#fence) && line.trim() === fence) this.#fence = "";
    this.#blank = line.trim() === "";
  }
}

/** @param {Piece[]} out @param {string} text @param {boolean} starts */
function put(out, text, starts) {
  const points = pointsOf(text);
  const last = out.at(-1);
  if (starts || last === undefined) {
    out.push({ text, points, starts });
    return;
  }
  last.text += text;
  last.points += points;
}
