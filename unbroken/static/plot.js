// @ts-check
/** Tokens per second over the last minute, as a small drawing. What is replayed is the past and does not count. */

import { h, say, svg } from "./dom.js";

const SECONDS = 60;
const FEWEST = 15; // seconds that are drawn, at least
const QUIET = 10;
const W = 240;
const H = 56;

export class Plot {
  /** @type {number[]} */ #buckets = new Array(SECONDS).fill(0);
  #used = false;
  #since = 0; // the same, after the last silence
  #second = Math.floor(Date.now() / 1000);
  #opened = this.#second; // nothing is known of the time before
  #line = svg("path", { class: "line" });
  #area = svg("path", { class: "area" });
  #now = h("strong", {}, "–");
  #unit = h("span", {}, "tokens/s");
  #span = h("span");
  #peak = h("span");
  element = h("section", { class: "card plot", "aria-label": "Speed" },
    h("h2", {}, "Speed"), h("p", { class: "figure" }, this.#now, " ", this.#unit),
    svg("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.#area, this.#line),
    h("p", { class: "thread-span" }, this.#span, this.#peak));

  /** @param {number} amount that came just now @param {string} unit */
  add(amount, unit) {
    this.#shift();
    this.#used ||= amount > 0;
    if (this.#buckets.slice(-QUIET).every((value) => value === 0)) this.#since = this.#second;
    this.#buckets[SECONDS - 1] += amount;
    say(this.#unit, `${unit}/s`);
  }

  /** Draws; cheap enough for every second. @param {boolean} running */
  draw(running) {
    this.#shift();
    this.element.hidden = !this.#used && !running; // nothing to tell about a task that ended before this page came
    say(this.#now, running ? short(this.rate) : "–");
    const known = Math.max(1, this.#second - this.#opened);
    const shown = Math.min(SECONDS - 1, Math.max(FEWEST, known));
    const values = this.#buckets.slice(-1 - Math.min(shown, known), -1); // the last second is not over yet
    const highest = Math.max(...values);
    const top = Math.max(5, highest);
    const x = (/** @type {number} */ i) => (W - (W * (values.length - 1 - i)) / (shown - 1)).toFixed(1);
    const points = values.map((value, i) => `${x(i)},${(H - 2 - ((H - 6) * value) / top).toFixed(1)}`);
    this.#line.setAttribute("d", `M${points.join("L")}`);
    this.#area.setAttribute("d", `M${x(0)},${H}L${points.join("L")}L${W},${H}Z`);
    say(this.#span, `last ${shown} s`);
    say(this.#peak, highest > 0 ? `peak ${short(highest)}` : "");
  }

  /** Per second, over the last full seconds: three, or fewer after a silence. */
  get rate() {
    const full = Math.min(3, Math.max(1, this.#second - this.#since - 1));
    return this.#buckets.slice(-1 - full, -1).reduce((sum, value) => sum + value, 0) / full;
  }

  #shift() {
    const second = Math.floor(Date.now() / 1000);
    const gone = Math.min(SECONDS, second - this.#second);
    if (gone <= 0) return;
    this.#second = second;
    this.#buckets = [...this.#buckets.slice(gone), ...new Array(gone).fill(0)];
  }
}

/** @param {number} rate */
function short(rate) {
  return rate < 10 ? rate.toFixed(1) : String(Math.round(rate));
}
