// @ts-check
/** The thread of a task: a drawing of its life, this viewer's presence below it, and the same as a list. */

import { fill, h, svg } from "./dom.js";
import { clock, duration } from "./format.js";
import { stretches } from "./history.js";

const WIDE = 1000;
const MOST_SAVES = 120;
const LONGEST_MS = 365 * 86_400_000;

/** @typedef {import("./history.js").Entry} Entry */
/**
 * @typedef {object} Life  times in ms
 * @property {number} from
 * @property {number} to                    now, while it runs
 * @property {readonly number[]} saves
 * @property {readonly {from: number, to: number, how: "here" | "away"}[]} presence  of this viewer
 */

export class Timeline {
  #task = lane(24);
  #you = lane(12);
  #youName = h("span", { class: "lane-name" }, "You");
  #list = h("ol", { class: "story", tabindex: "0", "aria-labelledby": "timeline-title" });
  #span = h("p", { class: "thread-span" });
  element = h("section", { class: "card timeline", "aria-labelledby": "timeline-title" },
    h("h2", { id: "timeline-title" }, "What happened"),
    h("div", { class: "lanes", "aria-hidden": "true" }, h("span", { class: "lane-name" }, "Task"), this.#task, this.#youName, this.#you, this.#span),
    this.#list);
  /** @type {readonly Entry[] | null} */ #shown = null;

  /** @param {readonly Entry[]} list oldest first @param {Life} life */
  update(list, life) {
    this.#draw(list, life);
    if (list === this.#shown) return;
    this.#shown = list;
    fill(this.#list, list.toReversed().map((entry) => line(entry, life.from)));
  }

  /** @param {readonly Entry[]} list @param {Life} life */
  #draw(list, { from, to, saves, presence }) {
    const length = Math.max(1_000, to - from);
    const x = (/** @type {number} */ at) => Math.round(10 + ((WIDE - 20) * Math.min(length, Math.max(0, at - from))) / length);
    const lines = stretches(list, from, from + length > to ? to : from + length).map((one) => stroke(`stretch ${one.how}`, x(one.from), x(one.to), 12));
    const dots = saves.slice(-MOST_SAVES).map((at) => stroke("dot save", x(at), x(at), 12));
    const marks = list.filter(({ mark }) => mark !== "save" && mark !== "back").map((entry) => stroke(`dot ${entry.mark}`, x(entry.at), x(entry.at), 12, entry));
    fill(this.#task, lines, dots, marks);
    const times = presence.filter((one) => one.from < to);
    this.#youName.hidden = times.length === 0; // everything had happened before this page came
    this.#you.toggleAttribute("hidden", times.length === 0);
    fill(this.#you, times.map((one) => stroke(`stretch ${one.how}`, x(one.from), x(one.to), 6)),
      list.filter(({ mark, at }) => mark === "back" && at >= times[0]?.from).map((entry) => stroke("dot back", x(entry.at), x(entry.at), 6, entry)));
    fill(this.#span, h("span", {}, clock(from)), h("span", {}, duration(to - from)), h("span", {}, clock(to)));
  }
}

/** @param {number} tall */
function lane(tall) {
  return svg("svg", { class: "thread", viewBox: `0 0 ${WIDE} ${tall}`, height: tall, preserveAspectRatio: "none" });
}

/** A line; with the same place twice, a dot. @param {string} looks @param {number} x1 @param {number} x2 @param {number} y
 * @param {Entry} [told] what it means */
function stroke(looks, x1, x2, y, told) {
  const wide = looks.startsWith("dot") ? x2 : Math.max(x2, x1 + 2);
  return svg("line", { class: looks, x1, x2: wide, y1: y, y2: y }, told && svg("title", {}, `${told.title}. ${told.detail}`));
}

/** @param {Entry} entry @param {number} from when the task began */
function line({ mark, at, title, detail }, from) {
  const since = at - from;
  const when = since < 1_000 || since > LONGEST_MS ? clock(at) : `+ ${duration(since)}`;
  return h("li", { class: mark },
    h("span", { class: "bullet", "aria-hidden": "true" }),
    h("div", {}, h("strong", {}, title), detail && h("span", { class: "detail", dir: "auto" }, detail)),
    h("time", { datetime: new Date(at).toISOString(), title: clock(at) }, when));
}
