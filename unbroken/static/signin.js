// @ts-check
/** Signing in to a server with keys. The key goes to the server once and comes back as a cookie that no script reads. */

import { signIn } from "./api.js";
import { fill, h, wrongIn } from "./dom.js";
import { ApiError } from "./stream.js";

/** @param {() => void} done @returns {HTMLElement} */
export function signInForm(done) {
  const key = /** @type {HTMLInputElement} */ (h("input", {
    id: "key", name: "key", type: "password", required: true, autocomplete: "current-password", spellcheck: "false",
    "aria-describedby": "key-hint",
  }));
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const wrong = wrongIn(/** @type {HTMLFormElement} */ (form));
    problem.hidden = wrong === null;
    if (wrong !== null) return fill(problem, wrong);
    button.setAttribute("disabled", "");
    try {
      await signIn(key.value.trim());
      key.value = "";
      done();
    } catch (error) {
      const refused = error instanceof ApiError && [401, 403].includes(error.status);
      fill(problem, refused ? "This key is not known here, or it has been revoked." : error instanceof Error ? error.message : String(error));
      problem.hidden = false;
      key.focus();
    } finally {
      button.removeAttribute("disabled");
    }
    return undefined;
  };
  const form = h("form", { class: "sign-in card", novalidate: true, onsubmit: send },
    h("h1", {}, "Sign in"), h("div", { class: "field" }, h("label", { for: "key" }, "Key"), key,
      h("p", { class: "hint", id: "key-hint" }, "Whoever runs this server makes keys with: unbroken keys create")),
    problem, button);
  queueMicrotask(() => key.focus());
  return form;
}
