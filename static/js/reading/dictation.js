// Writes what is spoken into the message box: by the model that staff name for it, else
// where the browser can recognise speech.
//
// Nothing is sent: the writer reads the text first. Some browsers have their maker's
// servers listen, which the button's title says; the button is hidden elsewhere.

import { $, notice } from "../dom.js";
import { locale } from "../locale.js";
import { replaceText } from "../people/completions.js";
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
  const box = $("#text");
  let running = null;
  const ended = (recognition) => {
    if (recognition !== running) return;
    running = null;
    button.setAttribute("aria-pressed", "false");
  };
  button.addEventListener("click", () => {
    if (running) return running.stop();
    $("#composer-errors").replaceChildren();
    const fail = () => showError(button.dataset.failed);
    try {
      running = begin(box, ended, fail);
    } catch {
      fail(); // the browser refuses to listen at all
    }
    button.setAttribute("aria-pressed", String(running !== null));
  });
  box.form.addEventListener("submit", () => {
    if (!running) return;
    running.onresult = null; // what it has heard is of the message that is sent
    running.abort();
    ended(running);
  });
}

function showError(text) {
  $("#composer-errors").replaceChildren(notice(text));
}

function begin(box, onEnd, onError) {
  const recognition = new Recognition();
  recognition.continuous = true;
  recognition.lang = locale; // of the page, which is that of the writer's settings
  let last = ""; // of what was inserted
  recognition.onresult = ({ results, resultIndex }) => {
    const fresh = [...results].slice(resultIndex).filter(({ isFinal }) => isFinal);
    const words = fresh.map(([best]) => best.transcript).join("");
    if (words) insert(box, words, last);
    last = words || last;
  };
  recognition.onerror = ({ error }) => error !== "aborted" && onError();
  recognition.onend = () => onEnd(recognition);
  recognition.start();
  return recognition;
}

/** At the caret, as if they were typed: what was written meanwhile stays. They have
 *  spaces of their own behind the `last` ones. */
function insert(box, words, last) {
  const { selectionStart: start, selectionEnd: end } = box;
  const before = box.value.slice(0, start);
  const follows = last && before.endsWith(last);
  replaceText(box, start, end, follows ? words : gap(before) + words.trimStart());
}

/** What was written while the model listened stays. */
function append(box, words) {
  const { length } = box.value;
  replaceText(box, length, length, gap(box.value) + words);
}

const gap = (before) => (/\S$/.test(before) ? " " : "");
