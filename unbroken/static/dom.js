// @ts-check
/**
 * Building elements without ever parsing text as HTML: whatever comes from a task, a sender or an error is text.
 *
 * @typedef {Node | string | number | null | undefined | false} Child
 */

/**
 * `h("button", {class: "quiet", onclick: save, disabled: true}, "Save")`. Functions are listeners, true/false set or
 * leave out an attribute, everything else is an attribute. Styles go through CSSOM, since the page's
 * Content-Security-Policy forbids style attributes.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (dress(document.createElement(tag), attributes, children));
}

/** The same for SVG. @param {string} tag @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children @returns {SVGElement} */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return /** @type {SVGElement} */ (dress(element, attributes, children));
}

/** @param {Element} element @param {Record<string, any>} attributes @param {(Child | Child[])[]} children */
function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...kept(children));
  return element;
}

/** @param {(Child | Child[])[]} children @returns {(Node | string)[]} */
function kept(children) {
  return children.flat().flatMap((child) => {
    if (child === null || child === undefined || child === false) return [];
    return [typeof child === "number" ? String(child) : child];
  });
}

/** Puts other children in. @param {Element} element @param {...(Child | Child[])} children */
export function fill(element, ...children) {
  element.replaceChildren(...kept(children));
}

/** Puts these children in this order and moves only what is elsewhere: what has the focus keeps it.
 * @param {Element} element @param {readonly Element[]} children */
export function arrange(element, children) {
  const staying = new Set(children);
  for (const child of [...element.children]) if (!staying.has(child)) child.remove();
  children.forEach((child, i) => element.children[i] !== child && element.insertBefore(child, element.children[i] ?? null));
}

/** Sets text only when it differs: screen readers and selections are not disturbed for nothing.
 * @param {Node} node @param {string} text */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {string} name a drawing of `icons.svg` */
export function icon(name) {
  const use = svg("use", { href: `/static/icons.svg#${name}` });
  return svg("svg", { class: "icon", "aria-hidden": "true", viewBox: "0 0 20 20" }, use);
}

/** One announcement for screen readers: states and results, never the text as it comes. @param {string} text */
export function announce(text) {
  const region = document.getElementById("announcer");
  if (region) say(region, text);
}

/** A short message at the bottom. @param {string} text @param {"info" | "bad"} [tone] */
export function toast(text, tone = "info") {
  const place = document.getElementById("toasts");
  const note = h("p", { class: `toast ${tone}`, role: tone === "bad" ? "alert" : "status" }, text);
  place?.append(note);
  setTimeout(() => note.remove(), tone === "bad" ? 9_000 : 4_000);
}

/** Asks before what cannot be taken back. Escape is no. @param {string} question @param {string} detail
 * @param {string} yes the button that does it @param {string} no the one that does nothing @returns {Promise<boolean>} */
export function confirmed(question, detail, yes, no) {
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { class: "ask", "aria-labelledby": "ask-title", "aria-describedby": "ask-detail" },
    h("form", { method: "dialog" }, h("h2", { id: "ask-title" }, question), h("p", { id: "ask-detail" }, detail),
      h("p", { class: "actions" }, h("button", { value: "", class: "quiet", autofocus: true }, no), h("button", { value: "yes", class: "grave" }, yes)))));
  document.body.append(dialog);
  const leave = () => dialog.close(); // what was asked about is not on the page any more
  window.addEventListener("hashchange", leave);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      window.removeEventListener("hashchange", leave);
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}

/** The first field that is not filled in as it has to be, told in the page's own words and focused; null = all are right.
 * For forms with `novalidate`. @param {HTMLFormElement} form @returns {string | null} */
export function wrongIn(form) {
  const fields = /** @type {HTMLInputElement[]} */ ([...form.elements].filter((field) => "validity" in field && "labels" in field));
  const wrong = fields.find((field) => !field.checkValidity());
  for (const field of fields) field === wrong ? field.setAttribute("aria-invalid", "true") : field.removeAttribute("aria-invalid");
  if (wrong === undefined) return null;
  const folded = wrong.closest("details");
  if (folded) folded.open = true;
  wrong.focus();
  const name = wrong.getAttribute("aria-label") ?? wrong.labels?.[0]?.textContent ?? wrong.name;
  const { min, max, validity } = wrong;
  if (validity.valueMissing) return `“${name}” is still empty.`;
  if (validity.badInput) return `“${name}” is not complete, or not what belongs there.`;
  if (validity.rangeUnderflow || validity.rangeOverflow) return `“${name}” must be from ${Number(min).toLocaleString("en")} to ${Number(max).toLocaleString("en")}.`;
  return `“${name}”: ${wrong.validationMessage}`;
}
