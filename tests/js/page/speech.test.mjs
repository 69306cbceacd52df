// An answer that is read aloud, and stopped before all of its parts have come.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, openPage } from "./page.mjs";

const { body } = openPage();
document.documentElement.lang = "en";
Object.defineProperty(Element.prototype, "innerText", {
  get() {
    return this.textContent;
  },
});
globalThis.addEventListener = () => {};
const spoken = [];
globalThis.speechSynthesis = {
  getVoices: () => [{}],
  speak: (words) => spoken.push(words),
  cancel: () => (spoken.length = 0),
};
globalThis.SpeechSynthesisUtterance = class {
  constructor(text) {
    this.text = text;
  }
};
const requests = []; // of further parts
globalThis.fetch = () => new Promise((_, reject) => requests.push(reject));
const { readAloudOnClick } = await import("../../../static/js/reading/speech.js");

const button = new Element("button", { "data-speak": "" });
const more = Object.assign(new Element("a", { "data-next-part": "" }), { href: "http://chat.example/more" });
const said = new Element("div", { class: "said" }, "One.\nTwo.");
const answer = new Element("div", { class: "answer" }, said, more);
body.append(new Element("article", { class: "turn", id: "turn-1" }, answer, button));
readAloudOnClick();
const click = () => {
  const event = new Event("click");
  document.dispatchEvent(Object.defineProperty(event, "target", { value: button }));
};

test("an answer that is begun again before its parts have come is read once", async () => {
  for (const _ of [1, 2, 3]) click(); // reads, stops, reads
  for (const reject of requests) reject(new TypeError("Failed to fetch"));
  await new Promise(setImmediate);
  assert.deepEqual(spoken.map(({ text }) => text), ["One.", "Two."]);
  assert.equal(button.getAttribute("aria-pressed"), "true");
  spoken[1].onend();
  assert.equal(button.getAttribute("aria-pressed"), "false");
});
