// Follows a conversation behind a link: shows what is new, and leaves a link that ended.
//
// The page is fetched again with the state that it shows; the server answers with
// nothing while that is the newest. What did not change stays as it is.

import { $, announce } from "../dom.js";
import { Rounds, restOf } from "../polling/rounds.js";
import { gettext } from "../texts.js";
import { improve } from "../reading/reading.js";
import { showTurn } from "./turns.js";

const SOON = 2000; // milliseconds after something new; more is likely to follow
const LATER = 5000;
const RARELY = 30_000; // for a snapshot, which can only end
const NEAR = 96; // pixels from the end that count as being there

const ANSWERED_IN = 30_000; // milliseconds; a long conversation is a large page
const REST = 30; // seconds after a refusal that names no time

export function followShared() {
  const every = "live" in main().dataset ? LATER : RARELY;
  const rounds = new Rounds({ look: () => look(rounds), every });
  rounds.plan();
}

const main = () => $("#conversation");

/** Milliseconds until the next look, if they are unlike the usual ones. */
async function look(rounds) {
  if (document.hidden || isSelecting()) return;
  const url = new URL(location.href);
  url.searchParams.set("state", main().dataset.state);
  const signal = AbortSignal.timeout(ANSWERED_IN);
  const response = await fetch(url, { signal }).catch(() => null);
  if (response?.redirected || response?.status === 404) return location.reload();
  if (response?.status === 429) rounds.rest(restOf(response) || REST);
  if (response?.status !== 200) return;
  const text = await response.text().catch(() => ""); // the network breaks off
  const page = new DOMParser().parseFromString(text, "text/html");
  if (!$("#conversation", page) || !$("h1", page)) return; // that of a captive portal
  show(page);
  return SOON;
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
  const nodes = [...fresh.children].map(showTurn);
  for (const node of [...transcript.children]) if (!nodes.includes(node)) node.remove();
  for (const [at, node] of nodes.entries()) {
    const there = transcript.children[at];
    if (there !== node) transcript.insertBefore(node, there ?? null);
  }
  improve(transcript); // before it is painted
}

const turnsIn = (root) => root.querySelectorAll(".turn");

function isAtEnd() {
  const { scrollHeight } = document.documentElement;
  return scrollHeight > innerHeight && scrollHeight - innerHeight - scrollY < NEAR;
}
