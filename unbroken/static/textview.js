// @ts-check
/**
 * The text of a task as it comes. The work per update is that of the new text: it is appended to the text node of the
 * last part, a part that is finished and in sight is swapped for rendered Markdown, and parts out of sight are not laid
 * out (content-visibility in the style sheet).
 *
 * @typedef {import("./stream/rope.js").Rope} Rope
 * @typedef {{from: number, to: number, element: HTMLElement, node: Text, swapped: boolean, tries: number}} Part
 */

import { h } from "./dom.js";
import { safeFragment } from "./markdown.js";
import { Splitter } from "./segments.js";
import { commonLength, slice } from "./stream.js";

const TRIES = 2;

export class TextView {
  element = h("div", { class: "text", lang: "" });
  /** @type {Rope} */ #rope = { blocks: [], length: 0 };
  /** @type {Part[]} */ #parts = [];
  #splitter = new Splitter();
  #raw = false;
  #ended = false;
  #render;
  /** @type {Set<Part>} */ #visible = new Set();
  /** @type {AbortController | null} */ #asking = null;
  #observer;

  /**
   * @param {(from: number, to: number, signal: AbortSignal) => Promise<string>} render  HTML of a range of code points
   */
  constructor(render) {
    this.#render = render;
    this.#observer = new IntersectionObserver((seen) => this.#seen(seen), { rootMargin: "300px" });
  }

  /** Whether text was taken back by this update. @param {Rope} rope @param {boolean} ended @returns {boolean} */
  update(rope, ended) {
    let rewound = false;
    if (rope !== this.#rope) {
      const common = commonLength(this.#rope, rope);
      rewound = common < this.#rope.length;
      this.#add(rope, rewound ? this.#cut(common) : common);
      this.#rope = rope;
    }
    this.#ended = ended;
    void this.#swapNext();
    return rewound;
  }

  /** Plain text exactly as it is stored, instead of rendered Markdown. @param {boolean} raw */
  setRaw(raw) {
    this.#raw = raw;
    this.element.classList.toggle("raw", raw);
    if (raw) this.#parts.forEach((part) => this.#unswap(part));
    void this.#swapNext();
  }

  close() {
    this.#observer.disconnect();
    this.#asking?.abort();
  }

  /** Removes the parts beyond `length`; returns where the text has to be taken up again. @param {number} length */
  #cut(length) {
    this.#asking?.abort();
    let from = length;
    while (this.#parts.length > 0 && /** @type {Part} */ (this.#parts.at(-1)).to > length) {
      const part = /** @type {Part} */ (this.#parts.pop());
      from = part.from; // a part begins where Markdown is in no structure: the splitter can begin there, too
      this.#observer.unobserve(part.element);
      this.#visible.delete(part);
      part.element.remove();
    }
    const last = this.#parts.at(-1);
    if (last && from === length) { // cut exactly between two parts: the open one is read again
      this.#parts.pop();
      from = last.from;
      this.#observer.unobserve(last.element);
      this.#visible.delete(last);
      last.element.remove();
    }
    this.#splitter = new Splitter();
    return from;
  }

  /** @param {Rope} rope @param {number} from */
  #add(rope, from) {
    const text = slice(rope, from);
    for (const piece of this.#splitter.push(text)) {
      let part = this.#parts.at(-1);
      if (piece.starts || part === undefined) part = this.#open(part?.to ?? 0);
      this.#unswap(part);
      part.node.appendData(piece.text);
      part.to += piece.points;
    }
  }

  /** @param {number} from @returns {Part} */
  #open(from) {
    const node = document.createTextNode("");
    const element = h("div", { class: "part plain", dir: "auto" }, node);
    const part = { from, to: from, element, node, swapped: false, tries: 0 };
    this.#parts.push(part);
    this.element.append(element);
    this.#observer.observe(element);
    return part;
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #seen(entries) {
    for (const { target, isIntersecting } of entries) {
      const part = this.#parts.find((one) => one.element === target);
      if (part) this.#visible[isIntersecting ? "add" : "delete"](part);
    }
    void this.#swapNext();
  }

  /** @param {Part} part */
  #unswap(part) {
    if (!part.swapped) return;
    part.swapped = false;
    part.node.data = slice(this.#rope, part.from, part.to);
    part.element.replaceChildren(part.node);
    part.element.className = "part plain";
  }

  /** One request at a time, newest in sight first: a long text that rushes by is not rendered for nobody. */
  async #swapNext() {
    if (this.#raw || this.#asking !== null) return;
    const last = this.#parts.at(-1);
    const ready = [...this.#visible].filter((part) => !part.swapped && part.tries < TRIES && (part !== last || this.#ended));
    const part = ready.sort((a, b) => b.from - a.from)[0];
    if (part === undefined) return;
    this.#asking = new AbortController();
    const { from, to } = part;
    part.tries += 1;
    try {
      const html = await this.#render(from, to, this.#asking.signal);
      if (!this.#raw && part.element.isConnected && part.to === to) this.#swap(part, html);
    } catch {
      // the plain text stays, which is right as well
    } finally {
      this.#asking = null;
    }
    setTimeout(() => void this.#swapNext(), 30);
  }

  /** @param {Part} part @param {string} html */
  #swap(part, html) {
    part.swapped = true;
    part.tries = 0;
    part.element.replaceChildren(safeFragment(html));
    part.element.className = "part rendered";
    part.node.data = "";
  }
}
