// @ts-check
/**
 * Who watches which task, over one connection. Runs in the SharedWorker that all tabs share, or in the page where
 * there is none.
 *
 * @typedef {import("./stream.js").TaskView} TaskView
 * @typedef {import("./stream.js").TaskEvent} TaskEvent
 * @typedef {import("./stream.js").LinkStatus} LinkStatus
 * @typedef {import("./stream.js").Problem} Problem
 *
 * @typedef {object} Ear
 * @property {(id: string, view: TaskView) => void} snapshot   what is known at this moment
 * @property {(id: string, events: TaskEvent[], replaying: boolean) => void} events   to be folded onto it
 * @property {(id: string, problem: Problem) => void} refused
 * @property {(status: LinkStatus) => void} connection
 */

import { followMany } from "./stream.js";

export class FeedCore {
  /** @type {Map<string, Set<Ear>>} */ #ears = new Map();
  #many = followMany([]);

  constructor() {
    this.#many.on("change", (id, _view, events) => {
      const { replaying } = this.#many.link;
      for (const ear of this.#ears.get(id) ?? []) ear.events(id, events, replaying);
    });
    this.#many.on("connection", (status) => this.#everyEar((ear) => ear.connection(status)));
    this.#many.on("refused", (problem, ids) => this.#refused(problem, ids));
  }

  /** @param {string} id @param {Ear} ear */
  watch(id, ear) {
    const ears = this.#ears.get(id) ?? new Set();
    this.#ears.set(id, ears.add(ear));
    this.#many.set(this.#ears.keys());
    ear.snapshot(id, this.#many.view(id));
    ear.connection(this.#many.link.status);
  }

  /** @param {string} id @param {Ear} ear */
  unwatch(id, ear) {
    const ears = this.#ears.get(id);
    ears?.delete(ear);
    if (ears?.size === 0) this.#ears.delete(id);
    this.#many.set(this.#ears.keys());
  }

  /** @param {Ear} ear that is gone */
  leave(ear) {
    for (const id of [...this.#ears.keys()]) this.unwatch(id, ear);
  }

  drop() {
    this.#many.drop();
  }

  /** After a sign-in, a replayed dead letter, or a wake-up that only a page can notice. */
  resume() {
    if (this.#ears.size > 0) this.#many.resume();
  }

  wake() {
    this.#many.link.wake();
  }

  offline() {
    this.#many.link.offline();
  }

  /** @param {(ear: Ear) => void} call */
  #everyEar(call) {
    for (const ear of new Set([...this.#ears.values()].flatMap((ears) => [...ears]))) call(ear);
  }

  /** Who is let go is watched again only by who asks again; when all are refused they stay, for a sign-in to resume.
   * @param {Problem} problem @param {string[]} ids */
  #refused(problem, ids) {
    const all = [...this.#ears.keys()].every((id) => ids.includes(id));
    const heard = ids.flatMap((id) => [...(this.#ears.get(id) ?? [])].map((ear) => ({ id, ear })));
    if (!all) for (const id of ids) this.#ears.delete(id);
    for (const { id, ear } of heard) ear.refused(id, problem);
  }
}
