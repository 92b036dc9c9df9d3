// @ts-check
/** One task: the text as it comes, how it is connected, and what happened to it. */

import { getHistory, getInput, getRendered, getResult, getTask, serverNow } from "./api.js";
import { Connection } from "./connection.js";
import { announce, fill, h, icon, toast } from "./dom.js";
import { resume, watch } from "./feed.js";
import { lostIn, placeOf } from "./history.js";
import { InputCard, Steps } from "./input.js";
import { Items } from "./items.js";
import { Plot } from "./plot.js";
import { keep, recall, remember } from "./recent.js";
import { Listening, silenceWords, waitingWords } from "./silence.js";
import { Story } from "./story.js";
import { ApiError, INITIAL, TERMINAL, fold, isTerminal, textOf } from "./stream.js";
import { TaskHead } from "./task-head.js";
import { TextView } from "./textview.js";
import { Timeline } from "./timeline.js";
import { learnTitles, learned, titleOf } from "./titles.js";
import { copyText, saveText, verify } from "./tools.js";

/** @typedef {import("./stream.js").TaskView} TaskView */
/** @typedef {import("./stream.js").LinkStatus} LinkStatus */

const REFRESH_MS = 5_000;
const SILENT_MS = 1_000; // between looks at a task whose writer is silent
const NEAR_END = 120;
const TURNS = new Set(["status", "done", "failed", "cancelled"]);

export class TaskPage {
  element = h("article", { class: "task" }, h("p", { class: "loading" }, "Loading…"));
  #id;
  /** @type {any} */ #task = null;
  /** @type {TaskView | null} */ #view = null;
  /** @type {LinkStatus | null} */ #status = null;
  /** @type {Story} */ #story = /** @type {any} */ (null); // until the task is known
  #drawn = 0; // characters
  #told = -1;
  #frame = 0;
  #asked = 0;
  #closed = false;
  #verified = "";
  /** @type {(() => void)[]} */ #ends = [];
  #connection = new Connection();
  #text;
  #items = new Items();
  #steps = new Steps();
  /** @type {string[]} */ #stepNames = [];
  #listening = new Listening();
  #plot = new Plot();
  #timeline = new Timeline();
  /** @type {TaskHead | null} */ #head = null;
  #checked = h("p", { class: "checked", hidden: true });
  #newest = h("button", { type: "button", class: "newest", hidden: true, onclick: () => this.#toEnd() }, "Newest text ↓");
  #textCard;

  /** @param {string} id */
  constructor(id) {
    this.#id = id;
    this.#text = new TextView((from, to, signal) => getRendered(id, from, to, signal));
    const raw = h("button", { type: "button", class: "quiet small", "aria-pressed": String(recall("unbroken.raw", false)), onclick: () => this.#toggleRaw(raw) }, "Raw");
    this.#text.setRaw(recall("unbroken.raw", false));
    this.#textCard = h("section", { class: "card text-card", "aria-label": "Text" },
      h("div", { class: "tools" }, h("h2", {}, "Text"), raw,
        h("button", { type: "button", class: "quiet small", onclick: () => copyText(this.#whole()) }, icon("copy"), "Copy"),
        h("button", { type: "button", class: "quiet small", onclick: () => saveText(this.#whole(), `${id}.txt`) }, icon("save"), "Download")),
      this.#text.element, this.#checked);
    void this.#begin();
  }

  close() {
    this.#closed = true;
    this.#text.close();
    cancelAnimationFrame(this.#frame);
    this.#ends.forEach((end) => end());
  }

  async #begin() {
    try {
      this.#task = await getTask(this.#id);
    } catch (error) {
      if (!this.#closed) this.#refused(error instanceof ApiError ? error.message : String(error));
      return;
    }
    if (this.#closed) return;
    remember(this.#id);
    /** @type {Promise<any> | null} */
    let given = null;
    const input = () => (given ??= getInput(this.#id).catch((error) => {
      given = null;
      throw error;
    }));
    const inputCard = new InputCard(input);
    const head = (this.#head = new TaskHead(this.#task, () => void this.#refresh()));
    fill(this.element, head.element, this.#connection.element,
      h("div", { class: "columns" }, h("div", { class: "main-column" }, inputCard.element, this.#steps.element, this.#textCard, this.#items.element, this.#newest),
        h("aside", { class: "side-column" }, this.#plot.element, this.#timeline.element)));
    this.#listening.look(this.#task);
    this.#story = new Story(this.#id, this.#task);
    const stop = watch(this.#id, {
      change: (view, events, replaying) => this.#change(view, events, replaying),
      connection: (status) => this.#connect(status),
      refused: (problem) => void this.#streamRefused(problem),
    });
    const timer = setInterval(() => this.#tick(), 1_000);
    const scrolled = () => this.#soon();
    document.addEventListener("scroll", scrolled, { capture: true, passive: true });
    this.#ends.push(stop, () => clearInterval(timer), () => document.removeEventListener("scroll", scrolled, { capture: true }));
    head.focus();
    void this.#recallHistory();
    void learnTitles([this.#task]).then(() => this.#named());
    if (this.#task.unit !== "tokens") void input().then((given) => this.#askedFor(given)).catch(() => {}); // it is shown without, too
  }

  /** Its title is known, and is remembered with it. */
  #named() {
    if (learned(this.#id)) remember(this.#id, { title: learned(this.#id) });
    this.#soon();
  }

  /** What was asked for, where it belongs: items beside their results, the steps of a chain. @param {any} input */
  #askedFor({ items, steps }) {
    if (Array.isArray(items)) this.#items.ask(items);
    if (Array.isArray(steps)) this.#stepNames = steps.map(({ name }) => String(name));
    this.#soon();
  }

  /** What happened before this viewer came: a replay leaves out what is superseded. */
  async #recallHistory() {
    this.#story.recall(await getHistory(this.#id).catch(() => [])); // then the story begins with this viewer
    if (!this.#closed) this.#tick();
  }

  /** @param {TaskView} view @param {import("./stream.js").TaskEvent[]} events @param {boolean} replaying */
  #change(view, events, replaying) {
    const before = this.#view;
    if (before && !replaying) this.#count(before, view);
    this.#listening.hear(events, replaying, serverNow(), view);
    this.#story.hear(events, view.lastEventId, replaying);
    const turning = events.some(({ type }) => TURNS.has(type));
    if (turning) void this.#refresh();
    this.#view = view;
    if (before === null || turning) this.#tick(); // what matters is not told a second later
    this.#soon();
  }

  /** @param {TaskView} before @param {TaskView} view */
  #count(before, view) {
    const total = view.total ?? this.#task.total;
    const unit = view.unit ?? this.#task.unit;
    if (unit === "tokens" && total > 0) this.#plot.add(Math.max(0, (view.progress - before.progress) * total), "tokens");
    else if (unit === "items") this.#plot.add(Math.max(0, Object.keys(view.items).length - Object.keys(before.items).length), "items");
    else this.#plot.add(Math.max(0, view.text.length - before.text.length), "characters");
  }

  /** @param {LinkStatus} status */
  #connect(status) {
    this.#status = status;
    const { entry, back } = this.#story.connect(status);
    if (entry) {
      announce(`${entry.title}. ${entry.detail}`);
      this.#tick();
    }
    if (back) void this.#refresh(); // when was it heard of?
    const silent = this.#view?.lastEventId === "" && TERMINAL.has(this.#task.state);
    if (silent && (status.phase === "caught-up" || status.phase === "ended") && !status.error) {
      void this.#streamRefused({ status: 410, code: "gone", message: "The events of this task are not kept any more." });
    }
    this.#soon();
  }

  #soon() {
    if (this.#frame !== 0 || this.#closed) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    const view = this.#effective();
    if (view === null || this.#head === null) return;
    const ended = isTerminal(view);
    const pane = scrollerOf(this.element);
    const end = this.#textCard.getBoundingClientRect().bottom;
    const atEnd = end - pane.bottom < NEAR_END && end > pane.top;
    if (!this.#text.update(view.text, ended || view.state === "paused")) this.#soon(); // a long text comes in over several frames
    const { length } = this.#text;
    this.#textCard.hidden = this.#task.kind === "batch" && view.text.length === 0;
    this.#items.element.hidden = this.#task.kind !== "batch" && Object.keys(view.items).length === 0;
    if (!this.#items.element.hidden) this.#items.update(view.items, view.total ?? this.#task.total);
    if (this.#stepNames.length > 0) this.#steps.update(this.#stepNames, ended && view.state === "completed" ? this.#stepNames.length : (view.done ?? this.#task.done ?? 0), view.state);
    const silence = this.#silence(view);
    this.#head.update(this.#task, view, this.#plot.rate || null, silence, lostIn(this.#story.list));
    document.title = `${titleOf(this.#task)} · Unbroken`;
    this.#textCard.classList.toggle("growing", view.state === "processing" && !silence);
    const live = silence ? silenceWords(silence) : waitingWords(view.state, view.retryAt);
    if (this.#status) this.#connection.update(this.#status, { state: view.state, live, silent: silence !== null }, { ...this.#story.seen, progress: view.progress });
    if (this.#told !== view.progress) {
      this.#told = view.progress; // the list beside it says the same, and not what it was told two seconds ago
      document.dispatchEvent(new CustomEvent("unbroken:progress", { detail: { id: this.#id, progress: view.progress } }));
    }
    // Text that grows under somebody's eyes is followed; a page that opens begins at its top.
    if (atEnd && this.#drawn > 0 && length > this.#drawn && end > 0) this.#toEnd("instant");
    this.#drawn = length;
    this.#newest.hidden = atEnd || ended || view.text.length === 0;
    if (ended && view.end) void this.#verify(view);
  }

  /** The stream's view, and before its first event what the task itself says. @returns {TaskView | null} */
  #effective() {
    const [view, task] = [this.#view, this.#task];
    if (view === null || task === null || view.lastEventId !== "") return view;
    return { ...view, state: task.state, reason: task.reason, progress: task.progress ?? 0, attempt: task.attempts ?? 0 };
  }

  /** Only a living line can tell that the writer is silent. @param {TaskView} view */
  #silence(view) {
    if (this.#status?.phase !== "live" && this.#status?.phase !== "caught-up") return null;
    return this.#listening.silence(view.state, this.#task, serverNow());
  }

  #tick() {
    const view = this.#effective();
    if (view === null || document.visibilityState === "hidden") return;
    const ended = isTerminal(view);
    this.#connection.tick();
    this.#plot.draw(view.state === "processing");
    const from = Date.parse(this.#task.created_at);
    const finished = Date.parse(view.end?.finishedAt ?? this.#task.finished_at ?? "");
    const last = Math.max(from, ...this.#story.list.map(({ at }) => at));
    const to = ended ? Math.max(Number.isFinite(finished) ? finished : 0, last) : Math.max(serverNow(), last);
    this.#timeline.update(this.#story.list, { from, to, saves: this.#story.saves, presence: this.#story.presence(to) });
    this.#soon();
    const every = this.#silence(view) ? SILENT_MS : view.state === "failed" ? 3 * REFRESH_MS : REFRESH_MS; // a dead letter may be replayed elsewhere
    if ((!ended || view.state === "failed") && Date.now() - this.#asked > every) void this.#refresh();
  }

  async #refresh() {
    this.#asked = Date.now();
    try {
      const task = await getTask(this.#id);
      if (this.#closed) return;
      this.#task = task;
      this.#listening.look(task);
      // Replayed somewhere else; an answer that was overtaken by the end is older than what is here.
      if (this.#view && isTerminal(this.#view) && !TERMINAL.has(task.state) && placeOf(task.last_event_id ?? "") > placeOf(this.#view.lastEventId)) resume();
      if (TERMINAL.has(task.state)) this.#story.look(task);
      this.#soon();
    } catch {
      // the stream tells when the task is gone; a lost poll is nothing
    }
  }

  /** @param {TaskView} view */
  async #verify(view) {
    const wanted = /** @type {{sha256: string}} */ (view.end).sha256;
    if (this.#verified === wanted || this.#task.kind === "batch") return;
    this.#verified = wanted;
    fill(this.#checked, icon("check"), await verify(textOf(view.text), view.text.length, /** @type {any} */ (view.end)));
    this.#checked.hidden = false;
  }

  #whole() {
    return this.#view ? textOf(this.#view.text) : "";
  }

  /** @param {ScrollBehavior} [behavior] */
  #toEnd(behavior) {
    this.#textCard.scrollIntoView({ block: "end", behavior: behavior ?? "auto" });
  }

  /** @param {HTMLElement} button */
  #toggleRaw(button) {
    const raw = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(raw));
    keep("unbroken.raw", raw);
    this.#text.setRaw(raw);
  }

  /** The events of an old task may be gone while its result is still kept. @param {import("./stream.js").Problem} problem */
  async #streamRefused(problem) {
    const kept = problem.status === 410 && this.#task?.state === "completed" && this.#task.kind !== "batch";
    const text = kept ? await getResult(this.#id).catch(() => null) : null;
    if (text === null) return this.#refused(problem.message);
    const { finished_at: finishedAt } = this.#task;
    const whole = fold(INITIAL, { type: "chunk", data: { offset: 0, text, progress: 1 }, id: this.#task.last_event_id });
    this.#view = { ...whole, state: "completed", progress: 1, end: null, at: finishedAt };
    return this.#soon();
  }

  /** @param {string} words */
  #refused(words) {
    const again = h("button", { type: "button", class: "primary", onclick: () => location.reload() }, "Try again");
    const note = h("div", { class: "empty", role: "alert" }, h("h1", {}, "This task cannot be shown"), h("p", { dir: "auto" }, words),
      h("p", { class: "actions" }, again, h("a", { class: "button quiet", href: "#/" }, "To the inbox")));
    if (this.#head === null) fill(this.element, note);
    else toast(words, "bad");
  }
}

/** @param {HTMLElement} element */
function scrollerOf(element) {
  const pane = element.closest("main");
  const own = pane !== null && getComputedStyle(pane).overflowY !== "visible";
  const box = own ? pane.getBoundingClientRect() : { top: 0, bottom: window.innerHeight };
  return { top: box.top, bottom: box.bottom };
}
