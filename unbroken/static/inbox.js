// @ts-check
/** The list of tasks: filters, paging, and a cheap refresh (a poll of the first page, only while somebody looks). */

import { listTasks } from "./api.js";
import { fill, h, say } from "./dom.js";
import { age, kindWord, percent, stateWord } from "./format.js";
import { recentTasks } from "./recent.js";
import { taskHref } from "./router.js";
import { ApiError, TERMINAL } from "./stream.js";
import { learnTitles, titleOf } from "./titles.js";

const BUSY_MS = 2_000;
const IDLE_MS = 6_000;
const PAGE = 40;

/** @typedef {import("./api.js").Task} Task */

export class Inbox {
  /** @type {Task[]} */ #tasks = [];
  /** @type {string | null} */ #cursor = null;
  /** @type {Map<string, {row: HTMLElement, looks: string}>} */ #rows = new Map();
  #more = false; // further pages were loaded
  #timer = 0;
  #asking = 0;
  #selected = "";
  #closing = new AbortController();
  #list = h("ul", { class: "tasks", onkeydown: (/** @type {KeyboardEvent} */ event) => this.#arrows(event) });
  #note = h("p", { class: "list-note" });
  #moreButton = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => void this.#next() }, "Show more");
  #form;
  element;

  constructor() {
    this.#form = filterForm(() => this.#filter());
    this.element = h("section", { class: "inbox", "aria-labelledby": "inbox-title" },
      h("div", { class: "inbox-head" }, h("h2", { id: "inbox-title" }, "Tasks"),
        h("a", { class: "button primary", href: "#/new" }, "New task")),
      this.#form, this.#list, this.#note, this.#moreButton);
    const { signal } = this.#closing;
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && void this.refresh(), { signal });
    document.addEventListener("unbroken:changed", () => void this.refresh(), { signal });
    void this.refresh();
  }

  /** @param {string | null} id */
  select(id) {
    this.#selected = id ?? "";
    for (const [key, { row }] of this.#rows) mark(row, key === this.#selected);
  }

  close() {
    this.#closing.abort();
    clearTimeout(this.#timer);
  }

  /** Asks for the first page again. */
  async refresh() {
    if (this.#closing.signal.aborted) return;
    clearTimeout(this.#timer);
    const asked = (this.#asking += 1);
    try {
      const page = await listTasks(this.#filters(), null, PAGE);
      if (asked !== this.#asking) return;
      this.#take(page);
      say(this.#note, this.#tasks.length === 0 ? "" : this.#note.textContent ?? "");
      this.#draw();
      if (await learnTitles(this.#tasks)) this.#draw();
    } catch (error) {
      say(this.#note, error instanceof ApiError ? error.message : "The list could not be read.");
    }
    clearTimeout(this.#timer);
    const busy = this.#tasks.some((task) => !TERMINAL.has(task.state) && task.state !== "paused");
    if (document.visibilityState === "visible" && !this.#closing.signal.aborted) this.#timer = setTimeout(() => void this.refresh(), busy ? BUSY_MS : IDLE_MS);
  }

  /** @param {import("./api.js").Page} page the first one; what was loaded beyond it stays */
  #take({ items, next_cursor }) {
    const fresh = new Set(items.map((task) => task.task_id));
    const rest = this.#more ? this.#tasks.slice(items.length).filter((task) => !fresh.has(task.task_id)) : [];
    this.#tasks = [...items, ...rest];
    if (!this.#more) this.#cursor = next_cursor;
  }

  async #next() {
    if (this.#cursor === null) return;
    const { items, next_cursor } = await listTasks(this.#filters(), this.#cursor, PAGE);
    const known = new Set(this.#tasks.map((task) => task.task_id));
    this.#tasks = [...this.#tasks, ...items.filter((task) => !known.has(task.task_id))];
    this.#cursor = next_cursor;
    this.#more = true;
    this.#draw();
    if (await learnTitles(this.#tasks)) this.#draw();
  }

  /** @returns {Record<string, string>} */
  #filters() {
    const data = new FormData(/** @type {HTMLFormElement} */ (this.#form));
    return Object.fromEntries(["state", "kind", "priority", "topic", "sender"].map((name) => [name, String(data.get(name) ?? "").trim()]));
  }

  #filter() {
    this.#more = false;
    this.#tasks = [];
    void this.refresh();
  }

  #draw() {
    const search = String(new FormData(/** @type {HTMLFormElement} */ (this.#form)).get("search") ?? "").trim().toLowerCase();
    const shown = this.#tasks.filter((task) => search === "" || words(task).includes(search));
    const rows = shown.map((task) => this.#row(task));
    const same = rows.length === this.#list.childElementCount && rows.every((row, i) => this.#list.children[i] === row);
    if (!same) fill(this.#list, rows);
    this.#moreButton.hidden = this.#cursor === null;
    if (shown.length > 0) return say(this.#note, "");
    const filtered = search !== "" || Object.values(this.#filters()).some((value) => value !== "");
    if (search !== "" && this.#cursor !== null) return say(this.#note, `Nothing fits among the newest ${this.#tasks.length}. Show more to search further back.`);
    return say(this.#note, filtered ? "Nothing fits these filters." : "No tasks yet. Write a prompt to begin.");
  }

  /** @param {Task} task */
  #row(task) {
    const id = task.task_id;
    const looks = JSON.stringify([titleOf(task), task.state, task.reason, task.progress, task.topic, task.sender, task.priority, task.warning, task.stale, age(task.created_at)]);
    const before = this.#rows.get(id);
    if (before?.looks === looks) return before.row;
    const row = before?.row ?? h("li");
    const link = row.querySelector("a") ?? h("a", { href: taskHref(id) });
    const bar = h("span", { class: `mini ${task.state}` });
    bar.style.setProperty("--progress", `${100 * (task.progress ?? 0)}%`);
    fill(link,
      h("span", { class: "row-title", dir: "auto" }, titleOf(task)),
      h("span", { class: "row-age" }, age(task.created_at)),
      h("span", { class: "row-facts" }, h("span", { class: `badge ${task.state}${task.warning ? " warned" : ""}` }, stateWord(task.state)),
        noteOf(task),
        h("span", {}, kindWord(task.kind)), task.priority !== "normal" && h("span", { class: `priority ${task.priority}` }, task.priority),
        task.sender && h("span", { class: "clip", dir: "auto" }, task.sender), task.topic && task.topic !== titleOf(task) && h("span", { class: "clip topic", dir: "auto" }, task.topic),
        !TERMINAL.has(task.state) && h("span", { class: "row-percent" }, percent(task.progress ?? 0))),
      !TERMINAL.has(task.state) && bar);
    if (!link.parentNode) row.append(link);
    mark(row, id === this.#selected);
    this.#rows.set(id, { row, looks });
    return row;
  }

  /** Up and down go through the list. @param {KeyboardEvent} event */
  #arrows(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    const links = [...this.#list.querySelectorAll("a")];
    const next = links[links.indexOf(/** @type {HTMLAnchorElement} */ (document.activeElement)) + step];
    if (next === undefined) return;
    event.preventDefault();
    next.focus();
  }
}

/** @param {HTMLElement} row @param {boolean} selected */
function mark(row, selected) {
  row.classList.toggle("selected", selected);
  const link = row.querySelector("a");
  if (selected) link?.setAttribute("aria-current", "page");
  else link?.removeAttribute("aria-current");
}

/** What the state alone does not say: items that failed, a worker that is silent. @param {Task} task */
function noteOf(task) {
  if (task.state === "processing" && task.stale) return h("span", { class: "row-note" }, "worker lost");
  if (!task.warning) return null;
  return h("span", { class: "row-note clip", title: task.warning, dir: "auto" }, task.warning.replace(/\.$/, ""));
}

/** @param {Task} task */
function words(task) {
  return [titleOf(task), task.topic, task.sender, task.kind, task.task_id, stateWord(task.state)].join(" ").toLowerCase();
}

/** @param {() => void} changed */
function filterForm(changed) {
  /** @param {string} name @param {string} label @param {[string, string][]} options */
  const choice = (name, label, options) => h("select", { name, "aria-label": label },
    h("option", { value: "" }, label), options.map(([value, text]) => h("option", { value }, text)));
  const states = /** @type {[string, string][]} */ (["pending", "processing", "paused", "recovering", "completed", "failed", "cancelled"].map((state) => [state, stateWord(state)]));
  const form = h("form", { class: "filters", role: "search", "aria-label": "Filter the tasks", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    h("input", { type: "search", name: "search", placeholder: "Search title, topic, sender, id", "aria-label": "Search in the list", autocomplete: "off" }),
    choice("state", "Any state", states),
    choice("kind", "Any kind", [["text", "Text"], ["batch", "Batch"], ["chain", "Chain"]]),
    choice("priority", "Any priority", [["high", "High"], ["normal", "Normal"], ["low", "Low"]]),
    h("input", { type: "text", name: "topic", placeholder: "Topic", "aria-label": "Topic", autocomplete: "off", maxlength: "100" }),
    h("input", { type: "text", name: "sender", placeholder: "Sender", "aria-label": "Sender", autocomplete: "off", maxlength: "100" }));
  let timer = 0;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(changed, 250);
  });
  return form;
}

/** Tasks that this browser remembers. */
export function recentList() {
  const entries = recentTasks().slice(0, 6);
  if (entries.length === 0) return null;
  return h("section", { class: "recent" }, h("h2", {}, "Seen in this browser"),
    h("ul", {}, entries.map((entry) => h("li", {}, h("a", { href: taskHref(entry.id), dir: "auto" }, entry.title || entry.id)))));
}
