// @ts-check
/** Tokens per second over the last minute, as a small drawing. What is replayed is the past and does not count. */

import { fill, h, svg } from "./dom.js";

const SECONDS = 60;
const QUIET = 10;
const W = 240;
const H = 56;

export class Plot {
  /** @type {number[]} */ #buckets = new Array(SECONDS).fill(0);
  #used = false;
  #since = 0; // the second in which something came after a silence
  #second = Math.floor(Date.now() / 1000);
  #line = svg("path", { class: "line" });
  #area = svg("path", { class: "area" });
  #now = h("strong", {}, "–");
  #unit = h("span", {}, "tokens/s");
  element = h("section", { class: "card plot", "aria-label": "Speed" },
    h("h2", {}, "Speed"), h("p", { class: "figure" }, this.#now, " ", this.#unit),
    svg("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.#area, this.#line));

  /** @param {number} amount that came just now @param {string} unit */
  add(amount, unit) {
    this.#shift();
    this.#used ||= amount > 0;
    if (this.#buckets.slice(-QUIET).every((value) => value === 0)) this.#since = this.#second;
    this.#buckets[SECONDS - 1] += amount;
    if (this.#unit.textContent !== `${unit}/s`) fill(this.#unit, `${unit}/s`);
  }

  /** Draws; cheap enough for every second. @param {boolean} running */
  draw(running) {
    this.#shift();
    const rate = this.rate;
    const top = Math.max(5, ...this.#buckets);
    const points = this.#buckets.slice(0, -1).map((value, i) => {
      const x = (W * i) / (SECONDS - 2);
      return `${x.toFixed(1)},${(H - 3 - ((H - 8) * value) / top).toFixed(1)}`;
    });
    this.#line.setAttribute("d", `M${points.join("L")}`);
    this.#area.setAttribute("d", `M0,${H}L${points.join("L")}L${W},${H}Z`);
    this.element.hidden = !running && !this.#used; // nothing to tell about a task that ended before this page came
    fill(this.#now, running ? (rate < 10 ? rate.toFixed(1) : String(Math.round(rate))) : "–");
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
