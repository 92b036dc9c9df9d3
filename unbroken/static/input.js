// @ts-check
/** What was asked for: a folded card on the task's page, and the steps of a chain with how far it is. */

import { fill, h, icon } from "./dom.js";
import { plural } from "./format.js";
import { TERMINAL } from "./stream.js";

/** Shown as text blocks, in this order; every other simple value is one of the small facts. @type {[string, string][]} */
const BLOCKS = [["system", "System"], ["prompt", "Prompt"], ["instruction", "Instruction for every item"]];
/** @type {Record<string, string>} */
const NAMES = { max_tokens: "most tokens", temperature: "temperature", seed: "seed", model: "model", stop: "stops at" };
/** @type {Record<string, string>} */
const ROLES = { system: "System", user: "User", assistant: "Assistant" };

export class InputCard {
  #body = h("div", { class: "input-body" });
  #ask;
  #asked = false;
  element = h("details", { class: "card input" }, h("summary", {}, "Input"), this.#body);

  /** @param {() => Promise<any>} ask  reads the input, when somebody wants to see it */
  constructor(ask) {
    this.#ask = ask;
    this.element.addEventListener("toggle", () => void this.#show());
  }

  async #show() {
    if (this.#asked || !(/** @type {HTMLDetailsElement} */ (this.element).open)) return;
    this.#asked = true;
    fill(this.#body, h("p", { class: "loading" }, "Loading…"));
    try {
      fill(this.#body, ...lines(await this.#ask()));
    } catch (error) {
      this.#asked = false; // opened again, it is asked for again
      fill(this.#body, h("p", { class: "quiet-line" }, error instanceof Error ? error.message : String(error)));
    }
  }
}

/** @param {any} input @returns {HTMLElement[]} */
function lines(input) {
  const { messages, items, steps, ...rest } = input;
  const out = BLOCKS.filter(([name]) => typeof rest[name] === "string").map(([name, label]) => block(label, rest[name]));
  for (const { role, content } of messages ?? []) out.push(block(ROLES[role] ?? role, content));
  (steps ?? []).forEach((/** @type {any} */ step, /** @type {number} */ i) => out.push(block(`${i + 1}. ${step.name}`, step.prompt)));
  if (Array.isArray(items)) out.push(h("p", { class: "quiet-line" }, `${plural(items.length, "item")}: each stands beside its result.`));
  for (const [name] of BLOCKS) delete rest[name];
  const facts = Object.entries(rest).filter(([, value]) => value !== null);
  if (facts.length > 0) {
    out.push(h("dl", { class: "input-facts" }, facts.flatMap(([name, value]) => [
      h("dt", {}, NAMES[name] ?? name), h("dd", { dir: "auto" }, typeof value === "string" ? value : JSON.stringify(value))])));
  }
  return out;
}

/** @param {string} label @param {string} text */
function block(label, text) {
  return h("section", { class: "input-block" }, h("h3", {}, label), h("p", { dir: "auto", tabindex: "0", role: "region", "aria-label": label }, text));
}

export class Steps {
  #list = h("ol", { class: "chain-steps" });
  element = h("section", { class: "card", "aria-labelledby": "steps-title", hidden: true }, h("h2", { id: "steps-title" }, "Steps"), this.#list);
  #drawn = "";

  /** @param {readonly string[]} names @param {number} done how many are finished @param {string} state of the task */
  update(names, done, state) {
    const looks = JSON.stringify([names, done, state]);
    if (looks === this.#drawn) return;
    this.#drawn = looks;
    this.element.hidden = names.length === 0;
    fill(this.#list, names.map((name, i) => {
      const how = i < done ? "done" : i === done && !TERMINAL.has(state) && state !== "pending" ? "now" : "";
      const words = how === "done" ? "done" : how === "now" ? (state === "processing" ? "being written" : "to be continued") : "to come";
      return h("li", { class: how, "aria-current": how === "now" && "step" },
        how === "done" ? icon("check") : h("span", { class: "step-number" }, i + 1),
        h("span", { dir: "auto" }, name), h("span", { class: "unseen" }, `, ${words}`));
    }));
  }
}
