// What is recorded for the message box, whose message is sent meanwhile.
import assert from "node:assert/strict";
import test, { mock } from "node:test";

import { Element, openPage } from "./page.mjs";

mock.timers.enable({ apis: ["setTimeout"] }); // of a recording's limit
const { body } = openPage();
const box = Object.assign(new Element("textarea", { id: "text" }), { value: "" });
const form = new Element("form", { id: "composer" }, box, new Element("input", { name: "csrfmiddlewaretoken" }));
const button = new Element("button", { id: "dictate", "data-seconds": "60", "data-failed": "No microphone" });
body.append(form, button, new Element("div", { id: "composer-errors" }), new Element("p", { id: "announcer" }));
let released = 0;
let isBroken = false;
const stream = { getTracks: () => [{ stop: () => (released += 1) }] };
navigator.mediaDevices = { getUserMedia: async () => stream };
globalThis.MediaRecorder = class extends EventTarget {
  static isTypeSupported = () => true;
  constructor() {
    super();
    if (isBroken) throw new Error("NotSupportedError");
  }
  start() {}
  stop() {
    this.dispatchEvent(new Event("stop"));
  }
};
let answer; // ends the request for the words
globalThis.fetch = () => new Promise((resolve) => {
  answer = () => resolve({ ok: true, json: async () => ({ text: "spoken" }) });
});
const { record } = await import("../../../static/js/reading/recording.js");
const heard = [];
record(button, (words) => heard.push(words));

const settle = () => new Promise(setImmediate);

async function press() {
  button.dispatchEvent(new Event("click"));
  await settle();
}

function send(text) {
  box.value = text;
  form.dispatchEvent(new Event("submit"));
  box.value = "";
}

test("the words come once the recording has ended, also if Send had nothing to send", async () => {
  await press();
  send("");
  await press();
  answer();
  await settle();
  assert.deepEqual(heard.splice(0), ["spoken"]);
});

test("what was said before a message was sent does not come into the next one", async () => {
  answer = null;
  await press();
  assert.equal(button.getAttribute("aria-pressed"), "true");
  send("typed");
  assert.equal(button.getAttribute("aria-pressed"), "false");
  assert.equal(answer, null); // nothing is written down
  await press();
  await press();
  send("typed");
  answer();
  await settle();
  assert.deepEqual(heard, []);
});

test("the microphone is given back if the browser cannot record", async () => {
  released = 0;
  isBroken = true;
  await press();
  assert.equal(released, 1);
  assert.equal(body.querySelector("#composer-errors").textContent, "No microphone");
});
