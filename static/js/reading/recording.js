// A recording of the microphone, which the server has written down by a model.
//
// One press begins, the next one ends; a recording ends by itself after the time that
// the server allows. The microphone is given back at once when it ends.

import { $, announce, notice } from "../dom.js";
import { gettext } from "../texts.js";

const KINDS = ["audio/webm;codecs=opus", "audio/mp4", "audio/ogg;codecs=opus"];

export const canRecord = () =>
  Boolean(navigator.mediaDevices?.getUserMedia && globalThis.MediaRecorder);

export function record(button, onWords) {
  let recorder = null;
  let sentTexts = 0; // what was said before one of them was sent is not of the next message
  $("#composer").addEventListener("submit", () => {
    if (!$("#text").value.trim()) return; // nothing is sent
    sentTexts += 1;
    recorder?.stop();
  }, { capture: true }); // before the box is emptied
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-busy") === "true") return;
    if (recorder) return recorder.stop();
    show(button, { isBusy: true });
    const before = sentTexts;
    recorder = await listen(button).catch(() => null);
    if (!recorder) return complain(button, button.dataset.failed);
    $("#composer-errors").replaceChildren();
    show(button, { isListening: true });
    announce(button.dataset.listening);
    recorder.addEventListener("stop", async () => {
      const data = new Blob(recorder.pieces, { type: recorder.mimeType });
      recorder = null;
      if (before !== sentTexts) return show(button, {});
      await writeDown(button, data, (words) => before === sentTexts && onWords(words));
    });
    if (before !== sentTexts) recorder.stop(); // it was sent while the browser asked
  });
}

async function listen(button) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const giveBack = () => stream.getTracks().forEach((track) => track.stop());
  try {
    return begin(stream, giveBack, button.dataset.seconds);
  } catch (error) {
    giveBack();
    throw error;
  }
}

function begin(stream, giveBack, seconds) {
  const mimeType = KINDS.find((kind) => MediaRecorder.isTypeSupported(kind));
  const recorder = new MediaRecorder(stream, { mimeType });
  recorder.pieces = [];
  recorder.addEventListener("dataavailable", ({ data }) => recorder.pieces.push(data));
  const limit = setTimeout(() => recorder.stop(), seconds * 1000);
  recorder.addEventListener("stop", () => {
    clearTimeout(limit);
    giveBack();
  });
  recorder.start();
  return recorder;
}

async function writeDown(button, data, onWords) {
  show(button, { isBusy: true });
  announce(button.dataset.writing);
  try {
    const words = await sent(button.dataset.url, data);
    if (words) onWords(words);
    else announce(button.dataset.nothing);
  } catch ({ message }) {
    complain(button, message);
  } finally {
    show(button, {});
  }
}

/** The words. Throws an error whose message is for the writer. */
async function sent(url, data) {
  const body = new FormData();
  body.set("file", data, "speech");
  const headers = { "X-CSRFToken": $("#composer [name=csrfmiddlewaretoken]").value };
  const response = await fetch(url, { method: "POST", body, headers }).catch(() => null);
  const answer = await response?.json().catch(() => null);
  if (response?.ok && answer) return answer.text;
  throw new Error(answer?.error?.message ?? gettext("The server could not be reached."));
}

function complain(button, words) {
  show(button, {});
  $("#composer-errors").replaceChildren(notice(words));
}

function show(button, { isListening = false, isBusy = false }) {
  button.setAttribute("aria-pressed", String(isListening));
  button.setAttribute("aria-busy", String(isBusy));
}
