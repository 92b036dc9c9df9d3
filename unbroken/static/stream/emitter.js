// @ts-check
import { checkedEar } from "./calls.js";

/** Just enough of an event emitter. An ear that throws does not stop the others. */
export class Emitter {
  /** @type {Map<string, Set<Function>>} */ #ears = new Map();
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
    for (const ear of this.#ears.get(name) ?? []) {
      try {
        ear(...args);
      } catch (error) {
        globalThis.reportError ? globalThis.reportError(error) : console.error(error);
      }
    }
  }
}
