// @ts-check
/**
 * Rendered Markdown comes from the server, made with HTML switched off. It is rebuilt here from an allow-list all the
 * same: generated text is data, and a mistake on one side must not become script on the other.
 */

import { h } from "./dom.js";

/** What a tag becomes. Headings go down two levels: the page has its own first and second. @type {Record<string, string>} */
const TAGS = {
  P: "p", BR: "br", HR: "hr", UL: "ul", OL: "ol", LI: "li", BLOCKQUOTE: "blockquote", PRE: "pre", CODE: "code",
  EM: "em", STRONG: "strong", S: "s", DEL: "del", A: "a", TABLE: "table", THEAD: "thead", TBODY: "tbody", TR: "tr",
  TH: "th", TD: "td", H1: "h3", H2: "h4", H3: "h5", H4: "h6", H5: "h6", H6: "h6",
};
const DROPPED = new Set(["SCRIPT", "STYLE", "TEMPLATE", "IFRAME", "OBJECT", "EMBED", "SVG", "MATH", "NOSCRIPT"]);
const DEEPEST = 40;

/** @param {string} html @returns {DocumentFragment} */
export function safeFragment(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html"); // runs nothing, loads nothing
  const out = document.createDocumentFragment();
  copy(parsed.body, out, 0);
  return out;
}

/** @param {Node} from @param {Node} to @param {number} depth */
function copy(from, to, depth) {
  for (const node of from.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) to.appendChild(document.createTextNode(node.nodeValue ?? ""));
    if (!(node instanceof Element) || DROPPED.has(node.tagName.toUpperCase())) continue;
    const target = depth < DEEPEST ? allowed(node) : null;
    if (target) to.appendChild(target);
    copy(node, target ?? to, depth + 1);
  }
}

/** @param {Element} node @returns {HTMLElement | null} null: only its text stays */
function allowed(node) {
  if (node.tagName === "IMG") return h("span", { class: "image" }, node.getAttribute("alt") || "image");
  const tag = TAGS[node.tagName];
  if (tag === undefined) return null;
  if (tag === "a") return link(node);
  if (tag === "ol") return h("ol", { start: /^\d{1,9}$/.test(node.getAttribute("start") ?? "") && node.getAttribute("start") });
  const dir = ["p", "li", "h3", "h4", "h5", "h6", "blockquote", "td", "th"].includes(tag) ? { dir: "auto" } : {};
  return h(tag, dir);
}

/** @param {Element} node */
function link(node) {
  const href = node.getAttribute("href") ?? "";
  if (!/^(https?:\/\/|mailto:)/i.test(href)) return h("span");
  return h("a", { href, rel: "noopener noreferrer nofollow", target: "_blank" });
}
