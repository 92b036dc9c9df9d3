// @ts-check
/** The thread of a task: a drawing of its life, and the same as a list. */

import { fill, h, svg } from "./dom.js";
import { clock, duration } from "./format.js";
import { stretches } from "./history.js";

const WIDE = 1000;
const Y = 26;
const MOST_SAVES = 120;

/** @typedef {import("./history.js").Entry} Entry */

export class Timeline {
  #drawing = svg("svg", { class: "thread", viewBox: `0 0 ${WIDE} 56`, preserveAspectRatio: "none", "aria-hidden": "true" });
  #list = h("ol", { class: "story" });
  #span = h("p", { class: "thread-span" });
  element = h("section", { class: "card timeline", "aria-labelledby": "timeline-title" },
    h("h2", { id: "timeline-title" }, "What happened"), this.#drawing, this.#span, this.#list);
  /** @type {readonly Entry[] | null} */ #shown = null;

  /**
   * @param {readonly Entry[]} list oldest first
   * @param {{from: number, to: number, saves: readonly number[]}} life  times in ms; `to` is now while it runs
   */
  update(list, life) {
    this.#draw(list, life);
    if (list === this.#shown) return;
    this.#shown = list;
    fill(this.#list, list.toReversed().map(line));
  }

  /** @param {readonly Entry[]} list @param {{from: number, to: number, saves: readonly number[]}} life */
  #draw(list, { from, to, saves }) {
    const length = Math.max(1_000, to - from);
    const x = (/** @type {number} */ at) => Math.round(10 + ((WIDE - 20) * Math.min(length, Math.max(0, at - from))) / length);
    const lines = stretches(list, from, from + length > to ? to : from + length).map((one) =>
      svg("line", { class: `stretch ${one.how}`, x1: x(one.from), x2: Math.max(x(one.to), x(one.from) + 2), y1: Y, y2: Y }));
    const dots = saves.slice(-MOST_SAVES).map((at) => svg("line", { class: "dot save", x1: x(at), x2: x(at), y1: Y, y2: Y }));
    const marks = list.filter(({ mark }) => mark !== "save").map(({ mark, at, title, detail }) => {
      const place = x(at);
      const below = mark === "back" || mark === "you";
      const tip = svg("title", {}, `${title}. ${detail}`);
      return below
        ? svg("line", { class: `tick ${mark}`, x1: place, x2: place, y1: Y + 8, y2: Y + 22 }, tip)
        : svg("line", { class: `dot ${mark}`, x1: place, x2: place, y1: Y, y2: Y }, tip);
    });
    fill(this.#drawing, lines, dots, marks);
    fill(this.#span, h("span", {}, clock(from)), h("span", {}, duration(to - from)), h("span", {}, clock(to)));
  }
}

/** @param {Entry} entry */
function line({ mark, at, title, detail }) {
  return h("li", { class: mark },
    h("span", { class: "bullet", "aria-hidden": "true" }),
    h("div", {}, h("strong", {}, title), detail && h("span", { class: "detail", dir: "auto" }, detail)),
    h("time", { datetime: new Date(at).toISOString() }, clock(at)));
}
