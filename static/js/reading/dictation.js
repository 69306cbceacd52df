// Writes what is spoken into the message box: by the model that staff name for it, else
// where the browser can recognise speech.
//
// Nothing is sent: the writer reads the text first. Some browsers have their maker's
// servers listen, which the button's title says; the button is hidden elsewhere.

import { $, notice } from "../dom.js";
import { canRecord, record } from "./recording.js";

const Recognition = globalThis.SpeechRecognition ?? globalThis.webkitSpeechRecognition;

export function dictate() {
  const button = $("#dictate");
  const isRecorded = Boolean(button?.dataset.url) && canRecord();
  if (!button || !(isRecorded || Recognition)) return;
  button.hidden = false;
  if (isRecorded) record(button, (words) => append($("#text"), words));
  else recognise(button);
}

function recognise(button) {
  let running = null;
  const ended = () => {
    running = null;
    button.setAttribute("aria-pressed", "false");
  };
  button.addEventListener("click", () => {
    if (running) return running.stop();
    $("#composer-errors").replaceChildren();
    running = begin($("#text"), ended, () => showError(button.dataset.failed));
    button.setAttribute("aria-pressed", String(running !== null));
  });
}

function showError(text) {
  $("#composer-errors").replaceChildren(notice(text));
}

function begin(box, onEnd, onError) {
  const recognition = new Recognition();
  recognition.continuous = true;
  recognition.interimResults = true;
  recognition.lang = navigator.language;
  const before = spaced(box.value);
  recognition.onresult = ({ results }) => {
    const spoken = [...results].map(([best]) => best.transcript).join("");
    fill(box, before + spoken);
  };
  recognition.onerror = onError;
  recognition.onend = onEnd;
  recognition.start();
  return recognition;
}

/** What was written while the model listened stays. */
const append = (box, words) => fill(box, spaced(box.value) + words);

const spaced = (text) => (text && !/\s$/.test(text) ? `${text} ` : text);

function fill(box, text) {
  box.value = text;
  box.dispatchEvent(new Event("input", { bubbles: true }));
}
