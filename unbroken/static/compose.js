// @ts-check
/** Where a task begins: a text, a batch (one item a line, or a file), or a chain of steps. */

import { createTask, newKey } from "./api.js";
import { fill, h, icon, wrongIn } from "./dom.js";
import { plural } from "./format.js";
import { recentList } from "./inbox.js";
import { keep, recall, remember } from "./recent.js";
import { taskHref } from "./router.js";
import { ApiError } from "./stream.js";

const DRAFT = "unbroken.draft";
const MOST_ITEMS = 1_000;

/** @param {string} id @param {string} label @param {HTMLElement} field @param {string} [hint] */
function labelled(id, label, field, hint) {
  field.id = id;
  if (hint) field.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), field, hint && h("p", { class: "hint", id: `${id}-hint` }, hint));
}

/** @param {string} name @param {[string, string][]} options */
function choice(name, options) {
  return h("select", { name }, options.map(([value, text]) => h("option", { value }, text)));
}

export class Compose {
  #kind = "text";
  #key = newKey();
  #fields = h("div", { class: "kind-fields" });
  #problem = h("div", { class: "problem", role: "alert", hidden: true });
  #submit = /** @type {HTMLButtonElement} */ (h("button", { type: "submit", class: "primary" }, "Start"));
  #form = /** @type {HTMLFormElement} */ (h("form", { class: "compose-form", novalidate: true }));
  element = h("div", { class: "compose" });

  constructor() {
    const tabs = h("div", { class: "kinds", role: "radiogroup", "aria-label": "Kind of task" },
      [["text", "Text"], ["batch", "Batch"], ["chain", "Chain"]].map(([value, label]) => h("label", {},
        h("input", { type: "radio", name: "kind", value, checked: value === "text", onchange: () => this.#choose(value) }), h("span", {}, label))));
    fill(this.#form, tabs, this.#fields, this.#options(), this.#problem,
      h("div", { class: "send" }, this.#submit, h("span", { class: "hint" }, "Ctrl + Enter starts, too")));
    this.#form.addEventListener("submit", (event) => void this.#send(event));
    this.#form.addEventListener("input", () => this.#edited());
    this.#form.addEventListener("keydown", (event) => (event.ctrlKey || event.metaKey) && event.key === "Enter" && this.#form.requestSubmit());
    fill(this.element, h("h1", { tabindex: "-1" }, "What should be written?"),
      h("p", { class: "lead" }, "It goes on while you are away: close the tab, lose the network, come back."), this.#form, recentList());
    this.#choose("text");
  }

  close() {}

  /** To where something is to be written. */
  focus() {
    const field = this.#fields.querySelector("textarea");
    if (field instanceof HTMLElement) field.focus();
  }

  #options() {
    return h("details", { class: "options" }, h("summary", {}, "Options"), h("div", { class: "grid" },
      h("div", { class: "wide" }, labelled("system", "System message", h("textarea", { name: "system", rows: "2", dir: "auto", placeholder: "How the model should behave" }))),
      labelled("model", "Model", h("input", { name: "model", maxlength: "100", autocomplete: "off", spellcheck: "false", placeholder: "the server's own" })),
      labelled("seed", "Seed", h("input", { name: "seed", type: "number", min: "0", max: "4294967295", step: "1", inputmode: "numeric", placeholder: "a new one each time" })),
      labelled("max_tokens", "Most tokens", h("input", { name: "max_tokens", type: "number", min: "1", max: "1000000", inputmode: "numeric", placeholder: "the model's own" })),
      labelled("temperature", "Temperature", h("input", { name: "temperature", type: "number", min: "0", max: "2", step: "0.1", placeholder: "the model's own" })),
      labelled("priority", "Priority", choice("priority", [["normal", "Normal"], ["high", "High"], ["low", "Low"]])),
      labelled("recovery", "When a worker is lost", choice("recovery", [["auto", "Go on by itself"], ["manual", "Pause, and wait for Recover"]])),
      labelled("run_at", "Not before", h("input", { name: "run_at", type: "datetime-local", step: "60" })),
      labelled("max_attempts", "Errors until it fails for good", h("input", { name: "max_attempts", type: "number", min: "1", max: "100", inputmode: "numeric", placeholder: "3" })),
      labelled("cache_s", "If the same was done before", choice("cache_s", [["", "Do it again"], ["3600", "Take it, when less than an hour old"], ["86400", "Take it, when less than a day old"]])),
      labelled("topic", "Topic", h("input", { name: "topic", maxlength: "100", dir: "auto", autocomplete: "off" })),
      labelled("sender", "Sender", h("input", { name: "sender", maxlength: "100", dir: "auto", autocomplete: "off" }))));
  }

  /** @param {string} kind */
  #choose(kind) {
    this.#kind = kind;
    const draft = recall(DRAFT, {});
    const area = (/** @type {string} */ name, /** @type {string} */ placeholder, rows = 6) => {
      const field = /** @type {HTMLTextAreaElement} */ (h("textarea", { name, rows, placeholder, dir: "auto", required: true }));
      field.value = typeof draft[name] === "string" ? draft[name] : "";
      return field;
    };
    if (kind === "text") fill(this.#fields, labelled("prompt", "Prompt", area("prompt", "Write a story about a lighthouse.")));
    if (kind === "batch") fill(this.#fields, ...this.#batchFields(area));
    if (kind === "chain") {
      const steps = h("ol", { class: "steps" });
      const more = h("button", { type: "button", class: "quiet", onclick: () => addStep(steps) }, "Add a step");
      addStep(steps, "Outline", "");
      addStep(steps, "Text", "");
      fill(this.#fields, h("p", { class: "hint" }, "Each step sees what was written so far. Progress is saved after every step."), steps, more);
    }
  }

  /** @param {(name: string, placeholder: string, rows?: number) => HTMLTextAreaElement} area */
  #batchFields(area) {
    const items = area("items", "One item a line", 6);
    const counted = h("p", { class: "hint", "aria-live": "polite" });
    const recount = () => fill(counted, plural(linesOf(items.value).length, "item"));
    items.addEventListener("input", recount);
    recount();
    const file = h("input", {
      type: "file", accept: ".txt,.csv,.tsv,.jsonl,.md,text/*", onchange: async (/** @type {Event} */ event) => {
        const chosen = /** @type {HTMLInputElement} */ (event.target).files?.[0];
        if (chosen) items.value = await chosen.text();
        recount();
      },
    });
    return [labelled("instruction", "Instruction for every item", area("instruction", "Summarise in one sentence.", 2)),
      labelled("items", "Items", items), counted, labelled("items-file", "or a file with one item a line", file)];
  }

  /** Another text is another intention: it gets another key. */
  #edited() {
    this.#key = newKey();
    const draft = recall(DRAFT, {});
    for (const name of ["prompt", "instruction", "items"]) {
      const field = this.#form.elements.namedItem(name);
      if (field instanceof HTMLTextAreaElement && field.value.length < 100_000) draft[name] = field.value;
    }
    keep(DRAFT, draft);
  }

  /** @returns {{body: any, title: string, steps?: string[]}} */
  #body() {
    const data = new FormData(this.#form);
    const text = (/** @type {string} */ name) => String(data.get(name) ?? "").trim();
    /** @type {any} */
    const input = {};
    for (const name of ["system", "model"]) if (text(name) !== "") input[name] = text(name);
    for (const name of ["max_tokens", "temperature", "seed"]) if (text(name) !== "") input[name] = Number(text(name));
    /** @type {any} */
    const body = { kind: this.#kind, input, priority: text("priority"), recovery: text("recovery") };
    for (const name of ["topic", "sender"]) if (text(name) !== "") body[name] = text(name);
    for (const name of ["max_attempts", "cache_s"]) if (text(name) !== "") body[name] = Number(text(name));
    if (text("run_at") !== "") body.run_at = new Date(text("run_at")).toISOString(); // the field speaks local time
    if (this.#kind === "text") input.prompt = text("prompt");
    if (this.#kind === "batch") Object.assign(input, { instruction: text("instruction"), items: linesOf(text("items")) });
    if (this.#kind !== "chain") return { body, title: firstWords(input.prompt ?? input.instruction) };
    const [names, prompts] = [data.getAll("step_name"), data.getAll("step_prompt")];
    input.steps = names.map((name, i) => ({ name: String(name).trim() || `Step ${i + 1}`, prompt: String(prompts[i]).trim() }));
    return { body, title: firstWords(input.steps[0]?.prompt ?? ""), steps: input.steps.map((/** @type {any} */ step) => step.name) };
  }

  /** @param {Event} event */
  async #send(event) {
    event.preventDefault();
    if (this.#submit.disabled) return;
    const wrong = wrongIn(this.#form);
    if (wrong !== null) return this.#say(wrong, []);
    const { body, title, steps } = this.#body();
    if (body.input.items?.length > MOST_ITEMS) return this.#say(`A batch holds at most ${MOST_ITEMS} items.`, []);
    this.#submit.disabled = true;
    this.#problem.hidden = true;
    try {
      const task = await createTask(body, this.#key);
      remember(task.task_id, { title, steps });
      this.#key = newKey();
      keep(DRAFT, {});
      location.hash = taskHref(task.task_id);
    } catch (error) {
      const problem = error instanceof ApiError ? error.problem : { message: String(error), fields: [] };
      this.#say(problem.message, problem.fields ?? []);
    } finally {
      this.#submit.disabled = false;
    }
    return undefined;
  }

  /** @param {string} message @param {{field: string, message: string}[]} fields */
  #say(message, fields) {
    fill(this.#problem, h("p", {}, icon("warn"), message),
      fields.length > 0 && h("ul", {}, fields.map(({ field, message: words }) => h("li", {}, h("strong", {}, field), field && ": ", words))));
    this.#problem.hidden = false;
  }
}

/** @param {HTMLElement} steps @param {string} [name] @param {string} [prompt] */
function addStep(steps, name = "", prompt = "") {
  const remove = () => {
    if (steps.childElementCount === 1) return;
    const next = step.nextElementSibling ?? step.previousElementSibling;
    step.remove();
    number(steps);
    next?.querySelector("button")?.focus(); // not back to the top of the page
  };
  const step = h("li", {},
    h("input", { name: "step_name", value: name, maxlength: "100", dir: "auto" }),
    h("textarea", { name: "step_prompt", rows: 2, placeholder: "What this step does", dir: "auto", required: true }, prompt),
    h("button", { type: "button", class: "quiet small", onclick: remove }, icon("trash")));
  steps.append(step);
  number(steps);
}

/** Says of each step which one it is now. @param {HTMLElement} steps */
function number(steps) {
  [...steps.children].forEach((step, i) => {
    const [name, prompt, remove] = step.children;
    name?.setAttribute("placeholder", `Step ${i + 1}`);
    name?.setAttribute("aria-label", `Name of step ${i + 1}`);
    prompt?.setAttribute("aria-label", `Prompt of step ${i + 1}`);
    remove?.setAttribute("aria-label", `Remove step ${i + 1}`);
  });
}

/** @param {string} text */
function linesOf(text) {
  return text.split(/\r?\n/).map((line) => line.trim()).filter((line) => line !== "");
}

/** @param {string} text */
function firstWords(text) {
  const line = text.split("\n").find((one) => one.trim() !== "")?.trim() ?? "";
  return line.length <= 90 ? line : `${line.slice(0, 88).replace(/\s+\S*$/, "")}…`;
}
