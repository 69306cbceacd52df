// What a browser hears, in a box in which the writer goes on.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, openPage } from "./page.mjs";

const { body } = openPage();
const listening = [];
globalThis.SpeechRecognition = class {
  results = [];
  start() {
    listening.push(this);
  }
  abort() {
    this.isAborted = true;
  }
  hears(transcript, isFinal = true) {
    this.results.push(Object.assign([{ transcript }], { isFinal }));
    this.onresult?.({ results: this.results, resultIndex: this.results.length - 1 });
  }
};
const box = Object.assign(new Element("textarea", { id: "text" }), {
  value: "",
  form: new EventTarget(),
  setRangeText(text, start, end) {
    this.type(this.value.slice(0, start) + text + this.value.slice(end), start + text.length);
  },
  type(text, caret = text.length) {
    this.value = text;
    this.selectionStart = this.selectionEnd = caret;
  },
});
const button = new Element("button", { id: "dictate" });
body.append(box, button, new Element("div", { id: "composer-errors" }));
const { dictate } = await import("../../../static/js/reading/dictation.js");
dictate();

function begin(text, caret) {
  box.type(text, caret);
  button.dispatchEvent(new Event("click"));
  return listening.at(-1);
}

const isListening = () => button.getAttribute("aria-pressed") === "true";

test("what is spoken comes at the caret and keeps what is typed meanwhile", () => {
  const recognition = begin("Dear Ada,\nyours", 9);
  recognition.hears("good", false);
  assert.equal(box.value, "Dear Ada,\nyours");
  recognition.hears("good morning");
  assert.equal(box.value, "Dear Ada, good morning\nyours");
  recognition.hears(" to you");
  box.type("Dear Ada, good morning to you!\nyours", 30);
  recognition.hears(" how are you");
  assert.equal(box.value, "Dear Ada, good morning to you! how are you\nyours");
  recognition.onend();
  assert.ok(!isListening());
});

test("what was sent is not brought back", () => {
  const recognition = begin("");
  recognition.hears("send this");
  box.form.dispatchEvent(new Event("submit"));
  box.type("");
  assert.ok(recognition.isAborted && !isListening());
  recognition.hears(" send this");
  assert.equal(box.value, "");
  const next = begin("");
  recognition.onend(); // of the first one, late
  assert.ok(isListening());
  next.hears("another");
  assert.equal(box.value, "another");
});

test("a browser that refuses to listen is said, and the next click tries again", (t) => {
  listening.at(-1).onend();
  button.dataset.failed = "It failed.";
  const { start } = SpeechRecognition.prototype;
  t.after(() => (SpeechRecognition.prototype.start = start));
  SpeechRecognition.prototype.start = () => {
    throw new DOMException("not allowed", "NotAllowedError");
  };
  const before = listening.length;
  begin("Dear Ada");
  assert.ok(!isListening());
  assert.match(body.querySelector("#composer-errors").textContent, /It failed/);
  SpeechRecognition.prototype.start = start;
  begin("Dear Ada");
  assert.equal(listening.length, before + 1);
  assert.ok(isListening());
});
