// @ts-check
/** The top of a task: what it is, how far it is, what can be done with it. */

import { act, deleteTask, newKey, replay } from "./api.js";
import { announce, confirmed, fill, h, icon, say, toast } from "./dom.js";
import { resume } from "./feed.js";
import { ago, count, kindWord, percent, plural, reasonWords, roughly, stateWord } from "./format.js";
import { forget } from "./recent.js";
import { LONG_MS, silenceAdvice } from "./silence.js";
import { ApiError, TERMINAL } from "./stream.js";
import { titleOf } from "./titles.js";

/** @typedef {import("./stream.js").TaskView} TaskView */
/** @typedef {import("./api.js").Task} Task */

export class TaskHead {
  #title = h("h1", { dir: "auto", tabindex: "-1" });
  #state = h("span", { class: "badge" });
  #facts = h("p", { class: "facts" });
  #bar = h("div", { class: "bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100", "aria-label": "Progress" },
    h("div", { class: "fill" }), h("div", { class: "saved", title: "Saved up to here" }));
  #numbers = h("span");
  #savedWords = h("span", { class: "saved-words" });
  #banner = h("div", { class: "banner", hidden: true });
  #buttons = h("div", { class: "actions" });
  #busy = false;
  #pressed = false; // the pressed button had the focus: what takes its place gets it
  #drawn = "";
  #recoverKey = "";
  /** @type {Task} */ #task;
  /** @type {() => void} */ #changed;

  /** @param {Task} task @param {() => void} changed  called when an action may have changed the task */
  constructor(task, changed) {
    this.#task = task;
    this.#changed = changed;
    this.element = h("header", { class: "task-head" },
      h("div", { class: "title-line" }, this.#title, this.#buttons, this.#state, this.#facts), this.#banner,
      h("div", { class: "progress" }, this.#bar, h("p", { class: "progress-words" }, this.#numbers, this.#savedWords)));
  }

  focus() {
    this.#title.focus({ preventScroll: true });
  }

  /** @param {Task} task @param {TaskView} view @param {number | null} rate tokens per second, when it is known
   * @param {import("./silence.js").Silence | null} [silence] @param {number} [lost] workers, as far as is told */
  update(task, view, rate, silence = null, lost = 0) {
    this.#task = task;
    const state = view.state;
    say(this.#title, titleOf(task));
    if (this.#state.textContent !== stateWord(state)) {
      if (this.#state.textContent !== "") {
        document.dispatchEvent(new CustomEvent("unbroken:changed"));
        announce(`The task is now: ${stateWord(state)}.`);
      }
      say(this.#state, stateWord(state));
    }
    this.#state.className = `badge ${state}${task.warning ? " warned" : ""}`;
    const crashes = Math.max(task.crashes ?? 0, lost);
    const facts = [kindWord(task.kind), task.topic !== titleOf(task) && task.topic, task.sender && `from ${task.sender}`,
      task.priority !== "normal" && `${task.priority} priority`, `created ${ago(task.created_at)}`,
      view.attempt > 1 && `attempt ${view.attempt}`, crashes > 0 && plural(crashes, "lost worker"),
      task.recovery === "manual" && "manual recovery"];
    say(this.#facts, facts.filter(Boolean).join(" · "));
    this.#progress(task, view, rate);
    this.#offer(task, view, silence !== null && (silence.stale || silence.ms > LONG_MS) ? silence : null);
  }

  /** @param {Task} task @param {TaskView} view @param {number | null} rate */
  #progress(task, view, rate) {
    const percents = Math.floor(100 * view.progress);
    this.#bar.style.setProperty("--progress", `${100 * view.progress}%`);
    this.#bar.className = `bar ${view.state}`;
    this.#bar.setAttribute("aria-valuenow", String(percents));
    const saved = view.checkpoint ?? (task.checkpoint && { ...task.checkpoint, savedAt: task.checkpoint.saved_at });
    const open = saved && !TERMINAL.has(view.state);
    this.#bar.classList.toggle("has-saved", Boolean(open));
    if (open) this.#bar.style.setProperty("--saved", `${100 * (saved.progress ?? 0)}%`);
    const unit = view.unit ?? task.unit;
    const [done, total] = [view.done ?? task.done, view.total ?? task.total];
    const amount = total && unit && unit !== "tokens" ? `${count(done ?? 0)} of ${count(total)} ${unit}` : "";
    const left = rate && rate > 0.5 && total && unit === "tokens" && view.state === "processing"
      ? `about ${roughly((total * (1 - view.progress)) / rate)} left` : "";
    const length = view.text.length > 0 ? `${count(view.text.length)} characters` : "";
    // While it runs, the percentage stands beside the connection, where it stays in sight.
    const far = view.state === "failed" || view.state === "cancelled" ? percent(view.progress) : "";
    say(this.#numbers, [far, amount, length, left].filter(Boolean).join(" · "));
    say(this.#savedWords, open ? `Saved up to ${percent(saved.progress ?? 0)}, ${ago(saved.savedAt)}` : "");
  }

  /** Buttons and the banner, rebuilt only when they would differ, so that focus is not lost.
   * @param {Task} task @param {TaskView} view @param {import("./silence.js").Silence | null} silence a long one */
  #offer(task, view, silence) {
    const { state, reason } = view;
    const error = view.error ?? task.error;
    const looks = JSON.stringify([state, reason, state === "failed" && error, view.retryAt, silence?.stale, silence?.began, task.warning, this.#busy]);
    if (looks === this.#drawn) return;
    this.#drawn = looks;
    const running = ["pending", "processing", "recovering"].includes(state);
    const focused = this.#pressed || (this.element.contains(document.activeElement) && document.activeElement?.tagName === "BUTTON");
    fill(this.#buttons,
      running && this.#button("pause", "Pause", "quiet", () => act(task.task_id, "pause")),
      !TERMINAL.has(state) && this.#button("stop", "Cancel", "quiet", () => act(task.task_id, "cancel"), () => confirmed("Stop this task for good?",
        "Its text so far is kept, but it cannot be continued.", "Stop it", "Let it go on")),
      TERMINAL.has(state) && this.#button("trash", "Delete", "quiet", () => this.#delete(), () => confirmed("Delete this task?",
        "Its text and everything else that is kept of it go, too.", "Delete it", "Keep it")));
    fill(this.#banner, ...this.#bannerFor(view, error, silence));
    this.#banner.hidden = this.#banner.childNodes.length === 0;
    this.#banner.className = `banner ${state}${silence ? " silent" : ""}`;
    if (focused && !this.#busy) this.#refocus();
  }

  /** Whoever works with the keyboard goes on from here: with what the banner offers, else with the first button. */
  #refocus() {
    this.#pressed = false;
    const next = this.#banner.querySelector("button") ?? this.#buttons.querySelector("button");
    if (next instanceof HTMLElement && (document.activeElement === null || document.activeElement === document.body)) next.focus();
  }

  /** @param {TaskView} view @param {any} error @param {import("./silence.js").Silence | null} silence */
  #bannerFor({ state, reason, retryAt }, error, silence) {
    if (state === "paused") {
      if (this.#recoverKey === "") this.#recoverKey = newKey(); // one key a pause: a double click is one recovery
      return [h("div", {}, h("strong", {}, reasonWords(reason)), h("p", {}, "What was written is kept. It continues from exactly there.")),
        this.#button("play", "Recover", "primary", () => act(this.#task.task_id, "recover", this.#recoverKey))];
    }
    this.#recoverKey = "";
    if (state === "failed") {
      return [h("div", {}, h("strong", { dir: "auto" }, error?.message ?? "The task failed."),
        h("p", {}, error?.code ? `Error: ${error.code}. ` : "", "Replay continues from what was saved, with fresh tries.")),
      this.#button("play", "Replay", "primary", () => this.#replay())];
    }
    if (state === "recovering") {
      const when = retryAt ? `Next try at ${new Date(retryAt).toLocaleTimeString()}.` : "It goes on as soon as a worker is free.";
      return [h("div", {}, h("strong", {}, "Recovering from what was saved. "), when)];
    }
    if (state === "pending" && retryAt) return [h("div", {}, h("strong", {}, "For later. "), `It starts at ${new Date(retryAt).toLocaleString()}.`)];
    const task = this.#task;
    if (silence) {
      const [what, next] = silenceAdvice(silence, task.recovery);
      return [h("div", {}, h("strong", {}, what), next)];
    }
    // A batch in which items failed is completed, and says so; a checkpoint that could not be saved, too.
    if (task.warning && (state === "completed" || state === "processing")) return [h("div", { dir: "auto" }, icon("warn"), h("span", {}, task.warning))];
    return [];
  }

  /** @param {string} drawing @param {string} label @param {string} look @param {() => Promise<unknown>} action
   * @param {() => Promise<boolean>} [sure] asks before; the button keeps the focus for who says no */
  #button(drawing, label, look, action, sure) {
    const press = async () => {
      if (this.#busy || (sure && !(await sure()))) return;
      this.#pressed = document.activeElement === button;
      this.#busy = true;
      button.setAttribute("disabled", "");
      try {
        await action();
      } catch (error) {
        toast(error instanceof ApiError ? error.message : String(error), "bad");
      } finally {
        this.#busy = false;
        button.removeAttribute("disabled");
        this.#changed();
      }
    };
    const button = h("button", { type: "button", class: look, disabled: this.#busy, onclick: press }, icon(drawing), label);
    return button;
  }

  async #delete() {
    await deleteTask(this.#task.task_id);
    forget(this.#task.task_id);
    toast("Deleted.");
    location.hash = "#/";
  }

  async #replay() {
    await replay({ task_ids: [this.#task.task_id] });
    resume();
  }
}
