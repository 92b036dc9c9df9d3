// @ts-check
/** Failed tasks, grouped by what went wrong, and how to try them again. */

import { getDeadLetters, getStats, replay } from "./api.js";
import { fill, h, icon, toast } from "./dom.js";
import { ago, kindWord, plural } from "./format.js";
import { resume } from "./feed.js";
import { groupHref, taskHref } from "./router.js";
import { ApiError } from "./stream.js";
import { learnTitles, titleOf } from "./titles.js";

export class DeadLetters {
  element = h("div", { class: "dead" }, h("p", { class: "loading" }, "Loading…"));
  #group;

  /** @param {string | null} group one group, or all */
  constructor(group) {
    this.#group = group;
    void this.#load();
  }

  close() {}

  async #load() {
    try {
      const answer = await getDeadLetters(this.#group ?? undefined);
      if (this.#group === null) await this.#showGroups(answer.groups);
      else {
        await learnTitles(answer.items);
        this.#showOne(answer.items);
      }
    } catch (error) {
      fill(this.element, h("div", { class: "empty", role: "alert" }, h("h1", {}, "Dead letters"), h("p", {}, error instanceof ApiError ? error.message : String(error))));
    }
  }

  /** @param {any[]} groups */
  async #showGroups(groups) {
    const stats = await getStats().catch(() => null);
    const hour = stats?.last_hour ?? stats ?? {};
    fill(this.element, h("h1", { tabindex: "-1" }, "Dead letters"),
      h("p", { class: "lead" }, "Tasks that failed for good. Replay continues each from what it had saved, with fresh tries."),
      hour.failures !== undefined && h("p", { class: "quiet-line" }, `Last hour: ${plural(hour.failures, "failure")}, ${plural(hour.successes ?? 0, "success", "successes")}.`),
      groups.length === 0
        ? h("div", { class: "empty good" }, icon("check"), h("p", {}, "Nothing has failed."))
        : h("ul", { class: "groups" }, groups.map((group) => this.#groupCard(group))));
  }

  /** @param {any} group */
  #groupCard(group) {
    const error = group.error ?? {};
    const name = String(group.group);
    const newest = group.last_failed_at;
    return h("li", { class: "card group" },
      h("div", { class: "group-count", "aria-label": plural(group.count, "task") }, group.count),
      h("div", { class: "group-words" },
        h("h2", { dir: "auto" }, error.message ?? error.code ?? "Failed"),
        h("p", { class: "facts" }, [kindWord(group.kind), error.code, newest && `newest ${ago(newest)}`].filter(Boolean).join(" · "))),
      h("div", { class: "actions" },
        h("a", { class: "button quiet", href: groupHref(name) }, "Show"),
        this.#replayButton(`Replay ${group.count === 1 ? "it" : "all"}`, { group: name })));
  }

  /** @param {any[]} tasks */
  #showOne(tasks) {
    const first = tasks[0];
    fill(this.element, h("p", {}, h("a", { href: "#/dead-letters" }, "All dead letters")),
      h("h1", { tabindex: "-1", dir: "auto" }, first?.error?.message ?? "Dead letters"),
      first && h("p", { class: "facts" }, `${kindWord(first.kind)} · ${first.error?.code ?? ""} · ${plural(tasks.length, "task")}`),
      tasks.length === 0
        ? h("div", { class: "empty good" }, icon("check"), h("p", {}, "This group is empty now."))
        : h("div", { class: "actions" }, this.#replayButton("Replay all of them", { group: this.#group ?? "" })),
      h("ul", { class: "letters" }, tasks.map((task) => h("li", { class: "card" },
        h("a", { href: taskHref(task.task_id), dir: "auto" }, titleOf(task)),
        h("span", { class: "facts", dir: "auto" }, [task.topic !== titleOf(task) && task.topic, ago(task.finished_at ?? task.updated_at), plural(task.attempts ?? 0, "attempt")].filter(Boolean).join(" · ")),
        this.#replayButton("Replay", { task_ids: [task.task_id] })))));
  }

  /** @param {string} label @param {{task_ids?: string[], group?: string}} what */
  #replayButton(label, what) {
    const press = async (/** @type {MouseEvent} */ event) => {
      if (event.detail > 1) return; // the second half of a double click: another row may have come under it
      button.setAttribute("disabled", "");
      try {
        const answer = await replay(what);
        toast(`${plural(answer.replayed, "task")} replayed.`);
        resume();
        await this.#load();
      } catch (error) {
        toast(error instanceof ApiError ? error.message : String(error), "bad");
        button.removeAttribute("disabled");
      }
    };
    const button = h("button", { type: "button", class: "quiet", onclick: press }, icon("play"), label);
    return button;
  }
}
