// @ts-check
/** The page: what is shown where, and who is signed in. */

import { forgetTasks, getSession, onSignInNeeded, signOut } from "./api.js";
import { Compose } from "./compose.js";
import { DeadLetters } from "./deadletters.js";
import { fill, h } from "./dom.js";
import { resume } from "./feed.js";
import { Inbox } from "./inbox.js";
import { forgetEverything, onSignOutElsewhere, tellSignOut } from "./recent.js";
import { listen } from "./router.js";
import { signInForm } from "./signin.js";
import { TaskPage } from "./task.js";
import { forgetTitles } from "./titles.js";

const main = /** @type {HTMLElement} */ (document.querySelector("main"));
const side = /** @type {HTMLElement} */ (document.getElementById("side"));
const badge = /** @type {HTMLElement} */ (document.getElementById("who"));

/** @type {Inbox | null} */ let inbox = null;
/** @type {{element: HTMLElement, close: () => void} | null} */ let page = null;
/** @type {import("./router.js").Route} */ let route = { name: "inbox", id: null };
/** @type {"asking" | "in" | "out"} whether somebody is signed in; nothing is shown before that is known */
let who = "asking";

/** @param {import("./router.js").Route} next */
function show(next) {
  const sameTask = page instanceof TaskPage && next.name === "task" && route.name === "task" && next.id === route.id;
  route = next;
  document.body.dataset.route = next.name;
  for (const link of document.querySelectorAll("nav a")) {
    const current = link.getAttribute("href") === `#/${next.name === "dead-letters" ? "dead-letters" : ""}`;
    current ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  if (who !== "in" || sameTask) return;
  const sameForm = page instanceof Compose && (next.name === "new" || next.name === "inbox"); // what is in it stays
  if (page === null || !sameForm) {
    page?.close();
    page = pageFor(next);
    fill(main, page.element);
  }
  main.scrollTop = 0;
  if (next.name === "new" && page instanceof Compose) page.focus();
  inbox?.select(next.name === "task" ? next.id : null);
  document.title = next.name === "dead-letters" ? "Dead letters · Unbroken" : "Unbroken";
  void inbox?.refresh();
}

/** @param {import("./router.js").Route} next */
function pageFor({ name, id }) {
  if (name === "task" && id !== null) return new TaskPage(id);
  if (name === "dead-letters") return new DeadLetters(id);
  return new Compose();
}

function askToSignIn() {
  if (who === "out") return;
  who = "out";
  page?.close();
  page = null;
  inbox?.close();
  inbox = null;
  document.body.classList.add("signed-out");
  fill(side);
  fill(badge);
  document.getElementById("toasts")?.replaceChildren();
  document.querySelector("dialog")?.close();
  document.title = "Unbroken";
  fill(main, signInForm(() => void enter().then(resume)));
}

/** Nothing of it stays, in no tab: the next person at this browser may be another one. */
function forgetAndAsk() {
  forgetEverything();
  forgetTitles();
  forgetTasks();
  askToSignIn();
}

/** @param {{owner: string | null, keys_required: boolean}} session */
function greet({ owner, keys_required: keys }) {
  if (!keys) return fill(badge);
  const leave = async () => {
    await signOut().catch(() => {});
    forgetAndAsk();
    tellSignOut();
    resume(); // the shared connection meets its 401 now, should a tab not have heard
  };
  return fill(badge, h("span", { class: "owner", dir: "auto" }, owner ?? ""), h("button", { type: "button", class: "quiet small", onclick: () => void leave() }, "Sign out"));
}

async function enter() {
  const session = await getSession().catch((error) => (error.problem?.status === 401 ? { owner: null, keys_required: true } : null));
  if (session?.keys_required && !session.owner) return askToSignIn();
  who = "in";
  document.body.classList.remove("signed-out");
  if (session) greet(session);
  inbox = new Inbox();
  fill(side, inbox.element);
  show(route);
  return undefined;
}

onSignInNeeded.add(askToSignIn);
onSignOutElsewhere(forgetAndAsk);
document.getElementById("skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  const target = main.querySelector("h1, textarea");
  if (target instanceof HTMLElement) target.focus();
});
listen(show);
void enter();
