// @ts-check
/** The state of this page's connection, honestly, and the button that drops it. */

import { announce, h, icon, say } from "./dom.js";
import { connectionWords, percent, plural } from "./format.js";
import { drop } from "./feed.js";
import { TERMINAL } from "./stream.js";

export class Connection {
  #words = h("span", { class: "words" }, "Connecting");
  #count = h("span", { class: "count" });
  #percent = h("strong", { class: "percent" });
  #pill = h("span", { class: "pill connecting" }, h("span", { class: "dot", "aria-hidden": "true" }), this.#words);
  #button = h("button", {
    type: "button", class: "quiet small", onclick: () => drop(),
    title: "Cuts this page's connection on purpose. It comes back by itself, and nothing is lost or shown twice.",
  }, icon("cut"), "Drop my connection");
  element = h("div", { class: "connection" }, this.#pill, this.#percent, this.#count, this.#button);
  /** @type {import("./stream.js").LinkStatus | null} */ #status = null;
  #about = { state: "", live: "" };

  /**
   * @param {import("./stream.js").LinkStatus} status
   * @param {{state: string, live: string, silent: boolean}} about  the task, and what a living connection says of it:
   *   that the writer is silent, for example
   * @param {{reconnects: number, replayed: number, progress: number}} seen  since this page shows this task
   */
  update(status, about, { reconnects, replayed, progress }) {
    const before = this.#status?.phase;
    const complete = TERMINAL.has(about.state); // all of it is here
    this.#about = about;
    this.#status = complete ? { ...status, phase: "ended", error: null } : status;
    const { phase } = this.#status;
    const silent = about.silent && (phase === "live" || phase === "caught-up");
    this.#pill.className = `pill ${phase} of-${about.state}${phase === "ended" && this.#status.error ? " bad" : ""}${silent ? " silent" : ""}`;
    this.#button.hidden = phase === "ended" || phase === "idle";
    this.#button.toggleAttribute("disabled", phase !== "live" && phase !== "caught-up");
    say(this.#count, reconnects === 0 ? "" : `${plural(reconnects, "reconnect")}, ${plural(replayed, "event")} replayed`);
    say(this.#percent, complete ? "" : percent(progress));
    this.tick();
    if (before !== phase && (phase === "offline" || phase === "reconnecting")) announce("The connection was lost. It comes back by itself.");
    if ((before === "offline" || before === "reconnecting") && (phase === "live" || phase === "caught-up")) announce("Connected again.");
  }

  /** Counts down. */
  tick() {
    if (this.#status) say(this.#words, connectionWords(this.#status, this.#about));
  }
}
