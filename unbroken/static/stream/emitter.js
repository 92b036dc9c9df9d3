// @ts-check
import { checkedEar } from "./calls.js";

/** Tells an error that is nobody's to catch. @param {unknown} error */
export function report(error) {
  globalThis.reportError ? globalThis.reportError(error) : console.error(error);
}

/** Just enough of an event emitter. An ear that throws does not stop the others, and all of them hear everything in the
 * same order: what an ear sets off is told when everybody has heard of its cause. */
export class Emitter {
  /** @type {Map<string, Set<Function>>} */ #ears = new Map();
  /** @type {{name: string, args: any[]}[]} */ #waiting = [];
  #telling = false;
  #names;

  /** @param {readonly string[]} names of the events there are */
  constructor(names) {
    this.#names = names;
  }

  /**
   * Listens; returns how to stop listening.
   * @param {string} name @param {(...args: any[]) => void} ear @returns {() => void}
   * @throws {TypeError} for an event that does not exist
   */
  on(name, ear) {
    checkedEar(this.#names, name, ear);
    const ears = this.#ears.get(name) ?? new Set();
    this.#ears.set(name, ears.add(ear));
    return () => ears.delete(ear);
  }

  /** @param {string} name @param {...any} args */
  emit(name, ...args) {
    this.#waiting.push({ name, args });
    if (this.#telling) return;
    this.#telling = true;
    try {
      for (let next; (next = this.#waiting.shift()); ) this.#tellAll(next.name, next.args);
    } finally {
      this.#telling = false;
    }
  }

  /** @param {string} name @param {any[]} args */
  #tellAll(name, args) {
    const ears = this.#ears.get(name) ?? new Set();
    for (const ear of [...ears]) {
      if (!ears.has(ear)) continue; // stopped listening just now
      try {
        ear(...args);
      } catch (error) {
        report(error);
      }
    }
  }
}
