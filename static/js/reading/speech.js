// Reads answers aloud with the browser's voices.

import { loadParts } from "../text-parts.js";
import { plainOf } from "./copy-answer.js";
import { languageOf } from "./language.js";

const LONGEST = 220; // characters at once: some browsers fall silent after 15 seconds
const speech = globalThis.speechSynthesis;

let speaking = null; // `{id}` of the turn that is read, another one each time

/** Where the browser has voices. */
export function showSpeechButtons(root) {
  if (!speech?.getVoices().length) return;
  for (const button of root.querySelectorAll("[data-speak][hidden]")) {
    button.hidden = false;
    if (turnOf(button).id === speaking?.id) press(button, true); // the turn was rendered again
  }
}

export function readAloudOnClick() {
  if (!speech) return;
  speech.onvoiceschanged = () => showSpeechButtons(document); // they load late
  speech.cancel(); // what the page before this one was saying
  addEventListener("pagehide", () => speech.cancel());
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-speak]");
    if (!button) return;
    const isStop = turnOf(button).id === speaking?.id;
    stop();
    if (!isStop) start(button);
  });
}

const turnOf = (button) => button.closest(".turn");
const press = (button, isPressed) => button.setAttribute("aria-pressed", String(isPressed));

async function start(button) {
  const own = (speaking = { id: turnOf(button).id });
  const answer = turnOf(button).querySelector(".answer");
  press(button, true);
  await loadParts(answer).catch(() => {}); // else it reads those that are there
  if (speaking !== own) return; // stopped meanwhile
  const text = plainOf(answer);
  const pieces = sentences(text);
  if (!pieces.length) return stop();
  const language = languageOf(text, document.documentElement.lang);
  for (const [index, piece] of pieces.entries()) {
    const words = new SpeechSynthesisUtterance(piece);
    words.lang = language;
    words.onerror = () => speaking === own && stop();
    if (index === pieces.length - 1) words.onend = words.onerror;
    speech.speak(words);
  }
}

function stop() {
  const pressed = document.querySelectorAll('[data-speak][aria-pressed="true"]');
  for (const button of pressed) press(button, false);
  speaking = null;
  speech.cancel();
}

/** The text in pieces that end at a line, a sentence or a word. */
export const sentences = (text) => text.split("\n").flatMap(sentencesOfLine);

function sentencesOfLine(line) {
  const pieces = [];
  let rest = line.replace(/\s+/g, " ").trim();
  while (rest.length > LONGEST) {
    const head = rest.slice(0, LONGEST);
    const end = Math.max(head.search(/[.!?…。！？](?=[^.!?…。！？]*$)/), 0);
    const at = end || head.lastIndexOf(" ") || LONGEST;
    const length = at > 0 ? at + 1 : LONGEST;
    pieces.push(rest.slice(0, length).trim());
    rest = rest.slice(length).trim();
  }
  return rest ? [...pieces, rest] : pieces;
}
