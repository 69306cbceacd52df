// Follows a conversation behind a link: shows what is new, and leaves a link that ended.
//
// The page is fetched again with the state that it shows; the server answers with
// nothing while that is the newest. Turns that did not change stay as they are.

import { $, announce } from "../dom.js";
import { gettext } from "../texts.js";
import { localiseTimes } from "../times.js";

const SOON = 2000; // milliseconds after something new; more is likely to follow
const LATER = 5000;
const RARELY = 30_000; // for a snapshot, which can only end
const NEAR = 96; // pixels from the end that count as being there

let timer = 0;

export function followShared() {
  plan();
  document.addEventListener("visibilitychange", () => document.hidden || look());
}

const main = () => $("#conversation");

function plan(wait = "live" in main().dataset ? LATER : RARELY) {
  clearTimeout(timer);
  timer = setTimeout(look, wait);
}

async function look() {
  clearTimeout(timer);
  if (document.hidden) return; // it looks when it is shown again
  if (isSelecting()) return plan();
  const url = new URL(location.href);
  url.searchParams.set("state", main().dataset.state);
  const response = await fetch(url).catch(() => null);
  if (response?.redirected || response?.status === 404) return location.reload();
  if (response?.status === 429) return plan(1000 * (response.headers.get("Retry-After") || 30));
  if (response?.status !== 200) return plan();
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  show(page);
  plan(SOON);
}

function isSelecting() {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(main(), true);
}

function show(page) {
  const wasAtEnd = isAtEnd();
  const fresh = $("#conversation", page);
  $("h1").textContent = $("h1", page).textContent;
  document.title = page.title;
  const before = turnsIn(main()).length;
  replaceTurns($("#transcript"), $("#transcript", page));
  main().dataset.state = fresh.dataset.state;
  if (turnsIn(main()).length > before) announce(gettext("The conversation goes on."));
  if (wasAtEnd) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
}

function replaceTurns(transcript, fresh) {
  const nodes = [...fresh.children].map((node) => unchanged(node) ?? adopted(node));
  for (const node of [...transcript.children]) if (!nodes.includes(node)) node.remove();
  for (const [at, node] of nodes.entries()) {
    const there = transcript.children[at];
    if (there !== node) transcript.insertBefore(node, there ?? null);
  }
}

/** The turn that the page shows already, as the server has it now. */
function unchanged({ id, dataset }) {
  const shown = id && document.getElementById(id);
  return shown && shown.dataset.version === dataset.version ? shown : null;
}

/** With the details open that the reader has opened. */
function adopted(node) {
  const shown = node.id && document.getElementById(node.id);
  const made = document.adoptNode(node);
  localiseTimes(made);
  for (const old of shown ? shown.querySelectorAll("details[data-key][open]") : []) {
    const same = made.querySelector(`details[data-key="${CSS.escape(old.dataset.key)}"]`);
    if (same) same.open = true;
  }
  return made;
}

const turnsIn = (root) => root.querySelectorAll(".turn");

function isAtEnd() {
  const { scrollHeight } = document.documentElement;
  return scrollHeight > innerHeight && scrollHeight - innerHeight - scrollY < NEAR;
}
