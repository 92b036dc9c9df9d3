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
import { commonLength, cut, slice } from "./stream/rope.js";

const TRIES = 2;
const CHAPTER = 32; // parts of one chapter: what is out of sight costs the browser little for each box, but not nothing
const AT_ONCE = 100_000; // code points taken in by one update: a long text that is there at once comes in several

export class TextView {
  element = h("div", { class: "text", lang: "" });
  /** @type {Rope} */ #rope = { blocks: [], length: 0 };
  /** @type {Part[]} */ #parts = [];
  /** @type {WeakMap<Element, Part>} */ #byElement = new WeakMap();
  #splitter = new Splitter();
  #raw = false;
  #ended = false;
  #render;
  /** @type {Set<Part>} */ #visible = new Set();
  /** @type {AbortController | null} */ #asking = null;
  #observer;
  #chapters;
  /** @type {Set<Element>} */ #nearby = new Set();

  /**
   * @param {(from: number, to: number, signal: AbortSignal) => Promise<string>} render  HTML of a range of code points
   */
  constructor(render) {
    this.#render = render;
    this.#observer = new IntersectionObserver((seen) => this.#seen(seen), around("300px"));
    this.#chapters = new IntersectionObserver((seen) => this.#near(seen), around("600px"));
  }

  /** How much of the text is here, in code points. */
  get length() {
    return this.#rope.length;
  }

  /** @param {Rope} rope @param {boolean} ended nothing more will come
   * @returns {boolean} whether all of it is here; if not, call again in the next frame */
  update(rope, ended) {
    let whole = true;
    if (rope !== this.#rope) {
      const common = commonLength(this.#rope, rope);
      const from = common < this.#rope.length ? this.#cut(common) : common;
      const next = cut(rope, Math.max(common, from + AT_ONCE));
      this.#add(next, from);
      this.#rope = next;
      whole = next.length === rope.length;
      if (whole) this.#rope = rope;
    }
    this.#ended = ended && whole;
    void this.#swapNext();
    return whole;
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
    this.#chapters.disconnect();
    this.#asking?.abort();
  }

  /** Removes the parts beyond `length`; returns where the text has to be taken up again. @param {number} length */
  #cut(length) {
    this.#asking?.abort();
    let from = length;
    while (this.#parts.length > 0 && /** @type {Part} */ (this.#parts.at(-1)).to > length) {
      const part = /** @type {Part} */ (this.#parts.pop());
      from = part.from; // a part begins where Markdown is in no structure: the splitter can begin there, too
      this.#drop(part);
    }
    const last = this.#parts.at(-1);
    if (last && from === length) { // cut exactly between two parts: the open one is read again
      this.#parts.pop();
      from = last.from;
      this.#drop(last);
    }
    this.#splitter = new Splitter();
    return from;
  }

  /** @param {Part} part */
  #drop(part) {
    const chapter = /** @type {Element} */ (part.element.parentElement);
    this.#observer.unobserve(part.element);
    this.#visible.delete(part);
    part.element.remove();
    if (chapter.childElementCount > 0) return;
    this.#chapters.unobserve(chapter);
    this.#nearby.delete(chapter);
    chapter.remove();
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
    this.#byElement.set(element, part);
    let chapter = this.element.lastElementChild;
    if (chapter === null || chapter.childElementCount >= CHAPTER) {
      this.element.append((chapter = h("div", { class: "chapter" })));
      this.#chapters.observe(chapter);
    }
    chapter.append(element);
    if (this.#nearby.has(chapter)) this.#observer.observe(element); // of a new chapter it is soon known whether it is
    return part;
  }

  /** Parts are looked at one by one only where their chapter is near. @param {IntersectionObserverEntry[]} entries */
  #near(entries) {
    for (const { target, isIntersecting } of entries) {
      this.#nearby[isIntersecting ? "add" : "delete"](target);
      for (const element of target.children) {
        this.#observer[isIntersecting ? "observe" : "unobserve"](element);
        const part = this.#byElement.get(element);
        if (part && !isIntersecting) this.#visible.delete(part);
      }
    }
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #seen(entries) {
    for (const { target, isIntersecting } of entries) {
      const part = this.#byElement.get(target);
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

/** What is nearly in sight counts, too: of the window, and of the pane that scrolls in it (newer browsers).
 * @param {string} margin @returns {IntersectionObserverInit} */
function around(margin) {
  return /** @type {any} */ ({ rootMargin: margin, scrollMargin: margin });
}
