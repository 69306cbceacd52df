// Questions to a person: the server renders their cards and receives the answers.
//
// A card is fetched when its question opens, and again when anybody has decided it. The
// answer is the card's own form, sent without leaving the page.

import { focusOn, isSignIn, leave } from "./dom.js";
import { adviceFor, sayNotSent } from "./people/posting.js";
import { gettext, interpolate } from "./texts.js";

const SCRIPT = { "X-Requested-With": "fetch" };
const GIVEN = new Set(["accept", "always"]); // actions that need valid fields
const OPEN_CARD = '[data-question][data-state="open"]';
const FIRST_PAUSE = 1000; // milliseconds after a request that failed; the next is longer
const LONGEST_PAUSE = 60_000;
const MOST_STRANGE = 5; // pages without the card
/** What a request for a card has come to. */
const [ANSWERED, FAILED, STRANGE] = ["answered", "failed", "strange"];
const underWay = new Set(); // ids of cards being fetched
const withoutCard = new Set(); // ids of open questions that this user may not see
const toFetchAgain = new Set(); // ids of those that were decided during the request
/** By place: ids of its questions, in the order of the calls, as last shown. */
const orders = new WeakMap();

/** Updates the cards in `place` to the states of `questions`, by id. */
export function showQuestions(place, questions) {
  orders.set(place, Object.keys(questions));
  for (const [id, state] of Object.entries(questions)) {
    const card = place.querySelector(`[data-question="${CSS.escape(id)}"]`);
    if (state !== "open") withoutCard.delete(id);
    const isNew = !card && state === "open" && !withoutCard.has(id);
    const isShownOpen = card ? card.dataset.state === "open" : underWay.has(id);
    const isDecided = isShownOpen && state !== "open";
    if (isDecided) toFetchAgain.add(id);
    if (isNew || isDecided) refresh(place, id);
  }
}

/** A person has answered the question; its turn may wait for answers to others. */
export function showDecided(id) {
  const card = document.querySelector(`[data-question="${CSS.escape(id)}"]`);
  if (card ? card.dataset.state !== "open" : !underWay.has(id)) return;
  toFetchAgain.add(id);
  if (card) refresh(card.parentElement, id);
}

/** All questions of the conversation that nobody has answered yet have these `ids`. */
export function showAllDecided(ids) {
  for (const { dataset } of document.querySelectorAll(OPEN_CARD)) {
    if (!ids.includes(dataset.question)) showDecided(dataset.question);
  }
}

/** Fetches the card until an answer is there, and again if it was decided meanwhile. A
 *  page without the card, as a captive portal's, is no answer: after some of them the
 *  next event of the turn, or a reload, tries again. */
async function refresh(place, id) {
  if (underWay.has(id)) return;
  underWay.add(id);
  let pause = FIRST_PAUSE;
  let strange = 0;
  do {
    toFetchAgain.delete(id);
    const result = await fetchCard(place, id);
    if (result === STRANGE) strange += 1;
    if (result === ANSWERED || strange >= MOST_STRANGE) continue;
    toFetchAgain.add(id);
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  } while (toFetchAgain.has(id) && place.isConnected);
  toFetchAgain.delete(id);
  underWay.delete(id);
}

/** `ANSWERED` if another request would bring nothing new. */
async function fetchCard(place, id) {
  try {
    const response = await fetch(`/questions/${id}/`, { headers: SCRIPT });
    if (response.redirected) return ANSWERED; // to a sign-in: the next event asks again
    if ([403, 404].includes(response.status)) {
      withoutCard.add(id);
      return ANSWERED;
    }
    if (!response.ok) return FAILED;
    const card = await cardIn(response);
    if (card) put(place, id, card);
    return card ? ANSWERED : STRANGE;
  } catch {
    return FAILED;
  }
}

function put(place, id, fresh) {
  const card = place.querySelector(`[data-question="${CSS.escape(id)}"]`);
  const hadFocus = card?.contains(document.activeElement);
  if (card) card.replaceWith(fresh);
  else place.insertBefore(fresh, laterCard(place, fresh));
  if (hadFocus) focusOn(fresh);
}

/** The first card of a later question: cards may arrive in another order. */
function laterCard(place, fresh) {
  const ids = orders.get(place) ?? []; // of now: it may have grown during the request
  const later = new Set(ids.slice(ids.indexOf(fresh.dataset.question) + 1));
  const cards = [...place.querySelectorAll(":scope > [data-question]")];
  return cards.find(({ dataset }) => later.has(dataset.question)) ?? null;
}

export function answerOnSubmit() {
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-question-form]");
    if (!form) return;
    event.preventDefault();
    if (!GIVEN.has(event.submitter.value) || isJSON(form)) send(form, event.submitter);
  });
  document.addEventListener("input", ({ target }) => {
    if (target.matches("[data-json]")) target.setCustomValidity("");
  });
}

function isJSON(form) {
  for (const field of form.querySelectorAll("[data-json]")) {
    const problem = problemOf(field.value);
    field.setCustomValidity(problem);
    if (!problem) continue;
    field.closest("details").open = true;
    field.reportValidity();
    return false;
  }
  return true;
}

function problemOf(text) {
  try {
    const value = text.trim() ? JSON.parse(text) : {};
    const isObject = value && typeof value === "object" && !Array.isArray(value);
    return isObject ? "" : gettext("The arguments must be a JSON object.");
  } catch ({ message: problem }) {
    return interpolate(gettext("This is not valid JSON: %(problem)s"), { problem });
  }
}

async function send(form, submitter) {
  const card = form.closest(".question");
  const body = new FormData(form, submitter);
  const buttons = form.querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  try {
    const url = form.getAttribute("action"); // its buttons are named action, too
    const response = await fetch(url, { method: "POST", body, headers: SCRIPT });
    if (isSignIn(response)) leave();
    const fresh = await cardIn(response);
    if (!fresh) return sayNotSent(form, adviceFor(response.status));
    // The turn's own event may have put a fresh card here already.
    const shown = card.isConnected ? card : sameCard(card);
    shown?.replaceWith(fresh);
    focusOn(fresh.querySelector("[role=alert]") ?? fresh);
    fresh.querySelector("[role=alert], .question-state")?.scrollIntoView({
      block: "nearest",
    });
  } catch {
    sayNotSent(form);
  }
}

function sameCard({ dataset }) {
  return document.querySelector(`[data-question="${CSS.escape(dataset.question)}"]`);
}

/** Null if the page has none. */
async function cardIn(response) {
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const card = page.querySelector(".question");
  if (!card) return null;
  const fresh = document.adoptNode(card);
  document.dispatchEvent(new CustomEvent("parley:rendered", { detail: fresh }));
  return fresh;
}
