// @ts-check
/** The items of a batch: each has its own result or its own error, set once. */

import { h, say } from "./dom.js";
import { plural } from "./format.js";

export class Items {
  #rows = h("tbody");
  #asked = h("th", { scope: "col", hidden: true }, "Item");
  /** @type {readonly string[]} */ #inputs = [];
  #sum = h("p", { class: "quiet-line" });
  #wrap = h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Items" },
    h("table", { class: "items" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "#"), this.#asked, h("th", { scope: "col" }, "Result"))), this.#rows));
  element = h("section", { class: "card", "aria-labelledby": "items-title" }, h("h2", { id: "items-title" }, "Items"),
    this.#sum, this.#wrap);
  /** @type {Map<number, {row: HTMLElement, item: unknown}>} */ #shown = new Map();

  /** What was asked, beside what came of it; every item has a row from now on. @param {readonly string[]} inputs */
  ask(inputs) {
    this.#inputs = inputs;
    this.#asked.hidden = inputs.length === 0;
    this.#shown.clear();
    this.#rows.replaceChildren();
    inputs.forEach((_text, index) => {
      const row = this.#row(index, null);
      this.#rows.append(row);
      this.#shown.set(index, { row, item: null });
    });
  }

  /** @param {Readonly<Record<number, import("./stream/fold.js").ItemResult>>} items @param {number | null} total */
  update(items, total) {
    let bad = 0;
    const indexes = Object.keys(items).map(Number);
    for (const index of indexes) {
      const item = items[index];
      if (!item.ok) bad += 1;
      const shown = this.#shown.get(index);
      if (shown && (shown.item === item || JSON.stringify(shown.item) === JSON.stringify(item))) continue;
      const row = this.#row(index, item);
      if (shown) shown.row.replaceWith(row);
      else this.#place(index, row);
      this.#shown.set(index, { row, item });
    }
    const of = total === null ? "" : ` of ${total}`;
    say(this.#sum, `${indexes.length}${of} finished${bad > 0 ? `, ${plural(bad, "error")}` : ""}. Finished items are never done again.`);
  }

  /** Keeps the order of the items, whatever the order in which they finish. @param {number} index @param {HTMLElement} row */
  #place(index, row) {
    const after = [...this.#shown.keys()].filter((other) => other > index).sort((a, b) => a - b)[0];
    this.#rows.insertBefore(row, after === undefined ? null : (this.#shown.get(after)?.row ?? null));
  }

  /** @param {number} index @param {import("./stream/fold.js").ItemResult | null} item null: not finished */
  #row(index, item) {
    const input = this.#inputs[index];
    return h("tr", { class: item === null ? "open" : item.ok ? "" : "bad" }, h("th", { scope: "row" }, index + 1),
      input !== undefined && h("td", { class: "asked", dir: "auto" }, input), h("td", { dir: "auto" }, said(item)));
  }
}

/** @param {import("./stream/fold.js").ItemResult | null} item */
function said(item) {
  if (item === null) return "…";
  if (!item.ok) return `${item.error?.code ?? "error"}: ${item.error?.message ?? ""}`;
  return typeof item.result === "string" ? item.result : JSON.stringify(item.result);
}
