// @ts-check
/** What narrows the list: a search and the state in sight, the rest behind a button that says how much of it is set. */

import { h, icon, say } from "./dom.js";
import { stateWord } from "./format.js";

const STATES = ["pending", "processing", "paused", "recovering", "completed", "failed", "cancelled"];
const HIDDEN = ["kind", "priority", "topic", "sender"];
const PATIENCE_MS = 250; // while somebody types

/** @param {string} name @param {string} label @param {string[][]} options */
function choice(name, label, options) {
  return h("select", { name, "aria-label": label }, h("option", { value: "" }, label), options.map(([value, text]) => h("option", { value }, text)));
}

/** @param {string} name @param {string} label */
function words(name, label) {
  return h("input", { type: "text", name, placeholder: label, "aria-label": label, autocomplete: "off", maxlength: "100" });
}

/** @param {() => void} changed */
export function filterForm(changed) {
  const more = h("div", { class: "filter-more", id: "more-filters", hidden: true },
    choice("kind", "Any kind", [["text", "Text"], ["batch", "Batch"], ["chain", "Chain"]]),
    choice("priority", "Any priority", [["high", "High"], ["normal", "Normal"], ["low", "Low"]]),
    words("topic", "Topic"), words("sender", "Sender"));
  const name = h("span", {}, "More filters");
  const toggle = h("button", { type: "button", class: "quiet small", "aria-expanded": "false", "aria-controls": "more-filters", onclick: () => open(more.hidden) }, icon("filter"), name);
  const open = (/** @type {boolean} */ yes) => {
    more.hidden = !yes;
    toggle.setAttribute("aria-expanded", String(yes));
  };
  const form = h("form", { class: "filters", role: "search", "aria-label": "Filter the tasks", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    h("input", { type: "search", name: "search", placeholder: "Search title, topic, sender, id", "aria-label": "Search in the list", autocomplete: "off" }),
    choice("state", "Any state", STATES.map((state) => [state, stateWord(state)])), toggle, more);
  const count = () => {
    const data = new FormData(/** @type {HTMLFormElement} */ (form));
    const set = HIDDEN.filter((one) => String(data.get(one) ?? "").trim() !== "").length;
    say(name, set === 0 ? "More filters" : `More filters (${set})`);
  };
  let timer = 0;
  form.addEventListener("input", () => {
    count();
    clearTimeout(timer);
    timer = setTimeout(changed, PATIENCE_MS);
  });
  form.addEventListener("reset", () => queueMicrotask(count)); // the fields are empty only after this event
  return form;
}
