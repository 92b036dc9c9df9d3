// @ts-check
/** The list of tasks: filters, paging, and a cheap refresh (a poll of the first page, only while somebody looks). */

import { listTasks, withOlder } from "./api.js";
import { arrange, fill, h, say } from "./dom.js";
import { filterForm } from "./filters.js";
import { age, kindWord, percent, stateWord } from "./format.js";
import { recentTasks } from "./recent.js";
import { taskHref } from "./router.js";
import { ApiError, TERMINAL } from "./stream.js";
import { learnTitles, titleOf } from "./titles.js";

const BUSY_MS = 2_000;
const IDLE_MS = 6_000;
const PAGE = 40;
const SPARE = 200; // rows of tasks that are not listed any more, kept for a while

/** @typedef {import("./api.js").Task} Task */

export class Inbox {
  /** @type {Task[]} */ #tasks = [];
  /** @type {string | null} */ #cursor = null;
  /** @type {Map<string, {row: HTMLElement, looks: string}>} */ #rows = new Map();
  #more = false; // further pages were loaded
  #timer = 0;
  #asking = 0;
  #selected = "";
  /** Of the task that is open: its stream is ahead of this list. @type {{id: string, progress: number} | null} */ #open = null;
  #explained = "";
  #closing = new AbortController();
  #list = h("ul", { class: "tasks", onkeydown: (/** @type {KeyboardEvent} */ event) => this.#arrows(event) });
  #note = h("div", { class: "list-note" });
  #trouble = h("p", { class: "list-trouble", role: "status" });
  #moreButton = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => void this.#next() }, "Show more");
  #form;
  element;

  constructor() {
    this.#form = filterForm(() => this.#filter());
    this.element = h("section", { class: "inbox", "aria-labelledby": "inbox-title" },
      h("div", { class: "inbox-head" }, h("h2", { id: "inbox-title" }, "Tasks"),
        h("a", { class: "button primary", href: "#/new" }, "New task")),
      this.#form, this.#trouble, this.#list, this.#note, this.#moreButton);
    const { signal } = this.#closing;
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && void this.refresh(), { signal });
    document.addEventListener("unbroken:changed", () => void this.refresh(), { signal });
    document.addEventListener("unbroken:progress", (event) => this.#follow(/** @type {CustomEvent} */ (event).detail), { signal });
    void this.refresh();
  }

  /** @param {{id: string, progress: number}} open */
  #follow(open) {
    this.#open = open;
    const task = this.#rows.has(open.id) && this.#tasks.find(({ task_id: id }) => id === open.id);
    if (task) this.#row(task);
  }

  /** @param {string | null} id */
  select(id) {
    this.#selected = id ?? "";
    if (this.#open?.id !== id) this.#open = null;
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
    await this.#tryTo(async () => {
      const page = await listTasks(this.#filters(), null, PAGE);
      if (asked !== this.#asking) return;
      this.#take(page);
      this.#draw();
      if (await learnTitles(this.#tasks)) this.#draw();
    });
    clearTimeout(this.#timer);
    const busy = this.#tasks.some((task) => !TERMINAL.has(task.state) && task.state !== "paused");
    if (document.visibilityState === "visible" && !this.#closing.signal.aborted) this.#timer = setTimeout(() => void this.refresh(), busy ? BUSY_MS : IDLE_MS);
  }

  /** What cannot be read is said, and what was read before stays. @param {() => Promise<void>} read */
  async #tryTo(read) {
    try {
      await read();
      say(this.#trouble, "");
    } catch (error) {
      const away = !(error instanceof ApiError) || error.status === 0 || error.status >= 500;
      const fault = error instanceof ApiError && error.problem.incident;
      say(this.#trouble, away && !fault ? "The server cannot be reached just now: this list may be out of date. It is asked again by itself." : error.message);
    }
  }

  /** @param {import("./api.js").Page} page the first one; what was loaded beyond it stays */
  #take({ items, next_cursor }) {
    this.#tasks = this.#more ? withOlder(items, this.#tasks) : items;
    if (!this.#more) this.#cursor = next_cursor;
  }

  async #next() {
    if (this.#cursor === null) return;
    await this.#tryTo(async () => {
      const { items, next_cursor } = await listTasks(this.#filters(), this.#cursor, PAGE);
      const known = new Set(this.#tasks.map((task) => task.task_id));
      this.#tasks = [...this.#tasks, ...items.filter((task) => !known.has(task.task_id))];
      this.#cursor = next_cursor;
      this.#more = true;
      this.#draw();
      if (await learnTitles(this.#tasks)) this.#draw();
    });
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
    arrange(this.#list, shown.map((task) => this.#row(task)));
    const old = [...this.#rows.keys()].slice(0, Math.max(0, this.#rows.size - this.#tasks.length - SPARE));
    for (const id of old) if (!this.#tasks.some((task) => task.task_id === id)) this.#rows.delete(id);
    this.#moreButton.hidden = this.#cursor === null;
    const filtered = search !== "" || Object.values(this.#filters()).some((value) => value !== "");
    const beyond = search !== "" && this.#cursor !== null ? `Nothing fits among the newest ${this.#tasks.length}. Show more to search further back.` : "Nothing fits these filters.";
    this.#explain(shown.length > 0 ? "" : filtered ? beyond : "none");
  }

  /** Why the list is empty. @param {string} words "" = it is not; "none" = there are no tasks at all */
  #explain(words) {
    if (this.#explained === words) return;
    this.#explained = words;
    const clear = () => {
      /** @type {HTMLFormElement} */ (this.#form).reset();
      this.#filter();
    };
    fill(this.#note, ...(words === "" ? [] : words === "none"
      ? [h("strong", {}, "No tasks yet"), h("p", {}, "What you start appears here, and stays here while it is written.")]
      : [h("p", {}, words), h("button", { type: "button", class: "quiet small", onclick: clear }, "Clear the filters")]));
  }

  /** @param {Task} task */
  #row(task) {
    const id = task.task_id;
    const progress = this.#open?.id === id ? this.#open.progress : (task.progress ?? 0);
    const looks = JSON.stringify([titleOf(task), task.state, task.reason, progress, task.topic, task.sender, task.priority, task.warning, task.stale, task.error?.message, age(task.created_at)]);
    const before = this.#rows.get(id);
    if (before?.looks === looks) return before.row;
    const row = before?.row ?? h("li");
    const link = row.querySelector("a") ?? h("a", { href: taskHref(id) });
    const bar = h("span", { class: `mini ${task.state}` });
    bar.style.setProperty("--progress", `${100 * progress}%`);
    const facts = [kindWord(task.kind), task.sender, task.topic !== titleOf(task) && task.topic].filter(Boolean);
    const begun = !TERMINAL.has(task.state) && (task.state !== "pending" || progress > 0);
    fill(link,
      h("span", { class: "row-title", dir: "auto" }, titleOf(task)),
      h("span", { class: "row-age" }, age(task.created_at)),
      h("span", { class: "row-facts" }, h("span", { class: `badge ${task.state}${task.warning ? " warned" : ""}` }, stateWord(task.state)),
        noteOf(task) ?? h("span", { class: "row-more" }, task.priority !== "normal" && h("span", { class: `priority ${task.priority}` }, task.priority),
          facts.map((fact) => h("span", { class: "clip", dir: "auto" }, fact))),
        begun && h("span", { class: "row-percent" }, percent(progress))),
      begun && bar);
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
  const words = task.warning ?? (task.state === "failed" ? task.error?.message : null);
  if (!words) return null;
  return h("span", { class: `row-note clip ${task.state}`, title: words, dir: "auto" }, words.replace(/\.$/, ""));
}

/** @param {Task} task */
function words(task) {
  return [titleOf(task), task.topic, task.sender, task.kind, task.task_id, stateWord(task.state)].join(" ").toLowerCase();
}

/** Tasks that this browser remembers. */
export function recentList() {
  const entries = recentTasks().slice(0, 6);
  if (entries.length === 0) return null;
  return h("section", { class: "recent" }, h("h2", {}, "Seen in this browser"),
    h("ul", {}, entries.map((entry) => h("li", {}, h("a", { href: taskHref(entry.id), dir: "auto" }, entry.title || titleOf({ task_id: entry.id }))))));
}
