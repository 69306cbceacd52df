// Two clicks in a row, whose requests are answered in another order or fail: what was
// chosen last is what the page shows and the server has.
import assert from "node:assert/strict";
import test, { beforeEach } from "node:test";

import { Element, addTemplate, openPage, slotted } from "./page.mjs";

const { body } = openPage();
body.dataset.user = "1";
globalThis.addEventListener = () => {};
globalThis.matchMedia = () => ({ matches: false });
Element.prototype.scrollIntoView = () => {};
Element.prototype.value = "";
/** Requests that wait for their answer, in the order in which they were sent. */
const requests = [];
globalThis.fetch = (url, options = {}) =>
  new Promise((resolve, reject) => requests.push({ url, options, resolve, reject }));
globalThis.FormData = class extends Map {
  constructor(form) {
    super([["of", form?.getAttribute("data-name")]]);
    this.tools = [];
  }
  append(_, value) {
    this.tools.push(value);
  }
};

const settle = () => new Promise((resolve) => setTimeout(resolve));
const SAVED = { type: "opaqueredirect", status: 0 };
const SIGNED_IN = { ok: true, status: 200, redirected: false, url: "http://chat.example/chats/" };

/** Answers posts in their order; other requests find the session open. */
async function answerAll(...answers) {
  await settle();
  while (requests.length) {
    const { options, resolve, reject } = requests.shift();
    const answer = options.method ? answers.shift() : SIGNED_IN;
    if (answer) resolve(answer);
    else reject(new TypeError("Failed to fetch"));
    await settle();
  }
}

const happens = (place, type, fields) => {
  const event = new Event(type, { cancelable: true });
  for (const [name, value] of Object.entries(fields)) Object.defineProperty(event, name, { value });
  place.dispatchEvent(event);
};

const errors = new Element("div", { id: "composer-errors" });
const token = Object.assign(new Element("input", { name: "csrfmiddlewaretoken" }), { value: "token" });
const dialog = Object.assign(new Element("dialog", { id: "dialog" }), { showModal() {}, close() {} });
const line = (id, text) => {
  const area = Object.assign(new Element("textarea"), { value: text, defaultValue: text });
  const edit = new Element("details", { class: "queued-edit" }, new Element("summary"), area);
  const form = Object.assign(new Element("form", { "data-name": id }, edit), { action: `/queue/${id}/` });
  return new Element("li", { class: "queued", "data-turn": id }, form);
};
const queueOf = (...lines) =>
  new Element("div", { id: "queue", "data-url": "/queue/", "data-failed": "Failed" }, ...lines);
body.append(
  new Element("form", { id: "composer" }, token),
  errors,
  new Element("p", { id: "announcer" }),
  dialog,
  queueOf(line("a", "A"), line("b", "B")),
);

const { Queue } = await import("../../../static/js/queue/queue.js");
const { chooseTools } = await import("../../../static/js/tools.js");
const { offerModels } = await import("../../../static/js/people/model-picker.js");

beforeEach(() => {
  requests.length = 0;
  errors.replaceChildren();
});

const complaints = [];
const shown = [];
const queue = new Queue({
  onShown: (messages) => shown.push(messages.map(({ text }) => text).join()),
  giveBack() {},
  complain: (why) => complaints.push(why),
});

test("of two lists that are fetched the later request counts, whatever comes first", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const lists = { first: queueOf(line("a", "Old")), second: queueOf(line("a", "New")) };
  globalThis.DOMParser = class {
    parseFromString = (name) => ({ querySelector: () => lists[name] });
  };
  const page = (name) => ({ ok: true, redirected: false, text: async () => name });
  queue.refresh();
  t.mock.timers.tick(50);
  queue.refresh();
  t.mock.timers.tick(50);
  const [first, second] = requests;
  second.resolve(page("second"));
  await new Promise(setImmediate);
  first.resolve(page("first"));
  await new Promise(setImmediate);
  assert.deepEqual(shown, ["New"]);
  assert.ok(lists.second.isConnected);
});

test("changes of waiting messages reach the server in the order of the clicks", async () => {
  body.querySelector("#queue").replaceWith(queueOf(line("a", "A"), line("b", "B")));
  for (const form of body.querySelectorAll("#queue form")) {
    const submitter = Object.assign(new Element("button"), { value: "earlier" });
    happens(document, "submit", { target: form, submitter });
  }
  await settle();
  assert.deepEqual(requests.map(({ url }) => url), ["/queue/a/"]); // b waits for its answer
  const [{ reject }] = requests.splice(0);
  reject(new TypeError("Failed to fetch"));
  await settle();
  assert.deepEqual(requests.map(({ url }) => url), ["/queue/b/"]);
  assert.deepEqual(complaints, ["Failed"]);
  await answerAll(SAVED);
});

test("a change without an answer ends, and the next one is sent", async () => {
  body.querySelector("#queue").replaceWith(queueOf(line("a", "A"), line("b", "B")));
  const { timeout } = AbortSignal;
  const stalled = new AbortController();
  AbortSignal.timeout = () => stalled.signal;
  complaints.length = 0;
  for (const form of body.querySelectorAll("#queue form")) {
    const submitter = Object.assign(new Element("button"), { value: "delete" });
    happens(document, "submit", { target: form, submitter });
  }
  await settle();
  const [{ options, reject }] = requests.splice(0);
  options.signal.addEventListener("abort", () => reject(options.signal.reason));
  AbortSignal.timeout = timeout;
  stalled.abort(new DOMException("too long", "TimeoutError"));
  await settle();
  assert.deepEqual(requests.map(({ url }) => url), ["/queue/b/"]);
  assert.deepEqual(complaints, ["Failed"]);
  await answerAll(SAVED);
});

const box = (value) => Object.assign(new Element("input", { name: "tool" }), { value, checked: false });

test("the last choice of tools is stored, and ends the notice of an earlier one", async () => {
  const boxes = [box("one"), box("two")];
  const labels = boxes.map((each) => new Element("label", {}, each));
  const menu = new Element("details", { id: "tools" }, new Element("span", { "data-slot": "count" }), ...labels);
  body.append(menu);
  chooseTools("/tools/");
  const sent = [];
  const { fetch } = globalThis;
  globalThis.fetch = (url, options) => {
    if (options.method === "POST") sent.push(options.body.tools);
    return fetch(url, options);
  };
  for (const each of boxes) {
    each.checked = true;
    happens(menu, "change", {});
  }
  await settle();
  assert.equal(sent.length, 1); // the second waits for the first
  await answerAll(null, SAVED);
  globalThis.fetch = fetch;
  assert.deepEqual(sent.at(-1), ["one", "two"]);
  assert.equal(errors.textContent, "");
});

addTemplate("models", slotted("form", {}, "search", "models", "none"));
addTemplate("model", slotted("li", {}, "choice", "star"));
body.querySelector("#models-template").content.firstElementChild.prepend(new Element("h1"));

/** The stars of two models, none of them a favourite, and what the server was sent. */
function stars() {
  body.querySelector("#choose-model")?.remove();
  body.querySelector("#model")?.remove();
  const opener = new Element("button", { id: "choose-model", "data-favourites": "[]", "data-settings": "/settings/" });
  const options = ["a", "b"].map((value) => Object.assign(new Element("option"), { value }));
  const select = Object.assign(new Element("select", { id: "model" }), { options, selectedOptions: [], value: "" });
  body.append(opener, select);
  offerModels();
  opener.dispatchEvent(new Event("click"));
  return dialog.querySelectorAll("[data-slot=star]");
}
const isPressed = (star) => star.getAttribute("aria-pressed") === "true";
const OK = { ok: true };
const REFUSED = { ok: false };

for (const [answers, clicks, pressed] of [
  [[OK, OK], [0, 1], [true, true]],
  [[REFUSED, OK], [0, 1], [true, true]],
  [[OK, REFUSED], [0, 1], [true, false]],
  [[REFUSED, REFUSED], [0, 1], [false, false]],
  [[REFUSED, OK], [0, 0], [false, false]],
  [[OK, REFUSED], [0, 0], [true, false]],
]) {
  const names = answers.map(({ ok }) => (ok ? "stored" : "refused")).join(", ");
  test(`favourites ${clicks} that are ${names} are as on the server`, async () => {
    const found = stars();
    let onServer = [];
    const { fetch } = globalThis;
    const left = [...answers];
    globalThis.fetch = async (url, options) => {
      if (url !== "/settings/") return fetch(url, options); // a list of an earlier test
      await settle();
      const answer = left.shift();
      if (answer.ok) onServer = JSON.parse(options.body).favourite_models;
      return answer;
    };
    for (const at of clicks) found[at].dispatchEvent(new Event("click"));
    while (left.length) await settle();
    for (let rounds = 0; rounds < 5; rounds += 1) await settle();
    globalThis.fetch = fetch;
    assert.deepEqual(found.map(isPressed), pressed);
    assert.deepEqual(["a", "b"].map((value) => onServer.includes(value)), pressed);
  });
}
