// @ts-check
/** What a caller may have meant: a call that would do nothing is refused with words that help. */

const OPTIONS = ["base", "fetch", "key", "silenceMs", "retryMs", "maxDelayMs", "random", "view"];
const NUMBERS = ["silenceMs", "retryMs", "maxDelayMs"];

/**
 * Options as they are used: an address without a slash at its end.
 * @template {Record<string, any>} T
 * @param {T} options @returns {T}
 * @throws {TypeError} for an unknown option, and for a wrong value
 */
export function checked(options) {
  if (options === null || typeof options !== "object") throw new TypeError("the options are an object: { base, key, ... }");
  for (const name of Object.keys(options)) {
    if (OPTIONS.includes(name)) continue;
    const event = /^on[A-Z]/.test(name) ? name[2].toLowerCase() + name.slice(3) : "";
    const instead = event ? `Listen with task.on("${event}", ...).` : `There are: ${OPTIONS.join(", ")}.`;
    throw new TypeError(`there is no option "${name}". ${instead}`);
  }
  for (const name of NUMBERS) {
    const value = options[name];
    if (value !== undefined && !(typeof value === "number" && value >= 0)) {
      throw new TypeError(`${name} is a number of milliseconds, not ${String(value)}`);
    }
  }
  if (options.base !== undefined && typeof options.base !== "string") throw new TypeError("base is an address, or \"\"");
  return options.base ? { ...options, base: options.base.replace(/\/+$/, "") } : options;
}

/** @param {unknown} id @returns {string} @throws {TypeError} */
export function checkedId(id) {
  if (typeof id === "string" && id !== "") return id;
  const hint = id !== null && typeof id === "object" && "task_id" in id ? " (give it task.task_id)" : "";
  throw new TypeError(`a task's id is a text such as "s0-abc"${hint}`);
}

/** @param {readonly string[]} names @param {string} name @param {unknown} ear @throws {TypeError} */
export function checkedEar(names, name, ear) {
  if (!names.includes(name)) throw new TypeError(`there is no event "${name}". There are: ${names.join(", ")}.`);
  if (typeof ear !== "function") throw new TypeError(`on("${name}", ...) needs a function`);
}
