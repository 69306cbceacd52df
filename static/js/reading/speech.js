// Reads answers aloud with the browser's voices. Nothing leaves the browser.

import { plainOf } from "./copy-answer.js";
import { languageOf } from "./language.js";

const LONGEST = 220; // characters at once: some browsers fall silent after 15 seconds
const speech = globalThis.speechSynthesis;

let speaking = null; // the button of what is read

/** Shows them unless the browser has no voices, as Chromium on many Linux systems. */
export function showSpeechButtons(root) {
  if (!speech?.getVoices().length) return;
  for (const button of root.querySelectorAll("[data-speak][hidden]")) {
    button.hidden = false;
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
    const isStop = button === speaking;
    stop();
    if (!isStop) start(button);
  });
}

function start(button) {
  const answer = button.closest(".turn").querySelector(".answer");
  const text = plainOf(answer);
  const pieces = sentences(text);
  if (!pieces.length) return;
  const language = languageOf(text, document.documentElement.lang);
  speaking = button;
  button.setAttribute("aria-pressed", "true");
  for (const [index, piece] of pieces.entries()) {
    const words = new SpeechSynthesisUtterance(piece);
    words.lang = language;
    if (index === pieces.length - 1) words.onend = () => button === speaking && stop();
    words.onerror = () => button === speaking && stop();
    speech.speak(words);
  }
}

function stop() {
  speaking?.setAttribute("aria-pressed", "false");
  speaking = null;
  speech.cancel();
}

/** The text in pieces that end at a sentence, or at least at a word. */
export function sentences(text) {
  const pieces = [];
  let rest = text.replace(/\s+/g, " ").trim();
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
