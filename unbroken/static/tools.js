// @ts-check
/** What a person does with a text: copy it, save it, check it. */

import { toast } from "./dom.js";
import { count } from "./format.js";

/** @param {string} text */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // no permission, or plain HTTP, where the clipboard interface does not exist
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) return toast("The browser did not allow copying. Use Raw and copy by hand.", "bad");
  }
  return toast("Copied.");
}

/** @param {string} text @param {string} name */
export function saveText(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Compares what is here with what the server says it stored. @param {string} text @param {number} length
 * @param {{length: number, sha256: string}} end @returns {Promise<string>} */
export async function verify(text, length, end) {
  const same = length === end.length;
  if (!same) return `${count(length)} characters here, ${count(end.length)} stored: reload the page.`;
  if (!globalThis.crypto?.subtle) return `${count(length)} characters, as stored.`; // plain HTTP has no digests
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  const hex = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex === end.sha256
    ? `${count(length)} characters, checked against the stored SHA-256: exact.`
    : "The text here differs from the stored one: reload the page.";
}
