// Answers that come late, fail, or are not asked for.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, addTemplate, openPage, slotted } from "./page.mjs";

const { body } = openPage();
globalThis.CSS = { escape: (text) => text };
Element.prototype.scrollIntoView = () => {};
const box = Object.assign(new Element("textarea"), { value: "@", selectionStart: 1 });
box.form = new Element("form", {}, box);
body.append(box.form);
addTemplate("completions", new Element("ul", { class: "completions" }));
globalThis.addEventListener = () => {};
globalThis.setInterval = () => 0;
globalThis.IntersectionObserver = class {
  observe() {}
};
body.dataset.user = "1";
const { complete } = await import("../../../static/js/people/completions.js");
const { answerOnSubmit, showQuestions } = await import("../../../static/js/questions.js");
const { openArtifactsBeside } = await import("../../../static/js/reading/artifacts.js");
const { Branch } = await import("../../../static/js/branches/branch.js");

test("no list opens over a box that has lost the focus", async () => {
  let answer;
  complete(box, () => new Promise((resolve) => (answer = resolve)));
  box.dispatchEvent(new Event("input"));
  box.dispatchEvent(new Event("blur"));
  answer({ label: "models", options: [{ name: "One", choose() {} }] });
  await new Promise(setImmediate);
  assert.equal(box.form.querySelector(".completions"), null);
});

test("a question's card is fetched again after a failure", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const place = new Element("div");
  place.insertBefore = (node) => place.append(node);
  body.append(place);
  const answers = [503, 200];
  globalThis.fetch = async () => {
    const status = answers.shift();
    return { ok: status < 400, status, text: async () => "" };
  };
  const card = new Element("section", { class: "question", "data-question": "q", "data-state": "open" });
  globalThis.DOMParser = class {
    parseFromString = () => ({ querySelector: () => card });
  };
  showQuestions(place, { q: "open" });
  await new Promise(setImmediate);
  assert.equal(place.querySelector(".question"), null);
  t.mock.timers.tick(1000);
  await new Promise(setImmediate);
  assert.equal(place.querySelector(".question"), card);
});

const SIGN_IN = { ok: true, status: 200, redirected: true, url: "http://chat.example/login/", text: async () => "" };
const PORTAL = { ok: true, status: 200, redirected: false, url: "http://chat.example/questions/q/", text: async () => "" };

for (const [name, answer, most] of [["a redirect to a sign-in", SIGN_IN, 1], ["the page of a captive portal", PORTAL, 5]]) {
  test(`a question's card is not fetched for ever after ${name}`, async (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const place = new Element("div");
    body.append(place);
    let count = 0;
    globalThis.fetch = async () => {
      count += 1;
      return answer;
    };
    globalThis.DOMParser = class {
      parseFromString = () => ({ querySelector: () => null });
    };
    showQuestions(place, { [name]: "open" });
    for (let minute = 0; minute < 20; minute += 1) {
      await new Promise(setImmediate);
      t.mock.timers.tick(60_000);
    }
    assert.equal(count, most);
  });
}

test("an answer to a question that only leads to the sign-in leaves the page, and is kept", async () => {
  const left = [];
  globalThis.location = { pathname: "/chat/1/", search: "", assign: (url) => left.push(url) };
  globalThis.FormData = class {};
  globalThis.fetch = async () => SIGN_IN;
  const button = Object.assign(new Element("button"), { value: "decline" });
  const form = new Element("form", { "data-question-form": "", action: "/questions/q/" }, button);
  const card = new Element("section", { class: "question", "data-question": "q" }, form);
  body.append(card);
  answerOnSubmit();
  const event = new Event("submit");
  for (const [field, value] of [["target", form], ["submitter", button]]) {
    Object.defineProperty(event, field, { value });
  }
  document.dispatchEvent(event);
  await new Promise(setImmediate);
  assert.deepEqual(left, ["/chat/1/"]);
  assert.ok(card.isConnected);
  assert.equal(button.disabled, false);
});

test("of the turns of another version only those that run are followed", async () => {
  const turn = (id, status) =>
    new Element("article", { class: "turn", "data-turn": id, "data-status": status, "data-parent": "" });
  const followed = [];
  const turns = { has: () => false, addForeign() {}, remove() {} };
  const branch = new Branch({ page: "/", transcript: new Element("main"), turns, follow: (id) => followed.push(id) });
  globalThis.fetch = async () => ({ ok: true, status: 200, text: async () => "" });
  for (const [id, status] of [["a", "completed"], ["b", "in_progress"]]) {
    globalThis.DOMParser = class {
      parseFromString = () => ({ querySelector: () => turn(id, status) });
    };
    await branch.add(id);
  }
  assert.deepEqual(followed, ["b"]);
});

test("a question whose card this user may not see is asked for once", async () => {
  const place = new Element("div");
  body.append(place);
  let count = 0;
  globalThis.fetch = async () => {
    count += 1;
    return { ok: false, status: 404, redirected: false };
  };
  for (let frame = 0; frame < 3; frame += 1) {
    showQuestions(place, { hidden: "open" });
    await new Promise(setImmediate);
  }
  assert.equal(count, 1);
  showQuestions(place, { hidden: "decided" });
  showQuestions(place, { hidden: "open" }); // a run that was resumed asks it again
  await new Promise(setImmediate);
  assert.equal(count, 2);
});

test("a card that met a sign-in, or an error that passes, is fetched again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const place = new Element("div");
  body.append(place);
  const answers = [SIGN_IN, { ok: false, status: 408 }, { ok: false, status: 404 }];
  globalThis.fetch = async () => answers.shift();
  showQuestions(place, { late: "open" });
  await new Promise(setImmediate);
  assert.equal(answers.length, 2);
  showQuestions(place, { late: "open" });
  await new Promise(setImmediate);
  assert.equal(answers.length, 1);
  t.mock.timers.tick(60_000);
  await new Promise(setImmediate);
  assert.equal(answers.length, 0);
});

test("of two artifacts that were clicked the later one is shown, and none once closed", async () => {
  const pane = slotted("aside", { id: "artifact", hidden: "" });
  const content = new Element("div", { "data-artifact-content": "" });
  pane.append(content);
  body.append(pane);
  openArtifactsBeside();
  const answers = {};
  globalThis.fetch = (url) =>
    new Promise((resolve) => {
      answers[url] = () =>
        resolve({ ok: true, status: 200, redirected: false, url, text: async () => url });
    });
  globalThis.DOMParser = class {
    parseFromString = (text) => ({ querySelector: () => new Element("div", {}, text) });
  };
  const click = (node) => {
    const event = new Event("click", { cancelable: true });
    Object.defineProperty(event, "target", { value: node });
    document.dispatchEvent(event);
  };
  const link = (href) => Object.assign(new Element("a", { "data-artifact": "" }), { href });
  click(link("/one"));
  click(link("/two"));
  for (const url of ["/two", "/one"]) {
    answers[url]();
    await new Promise(setImmediate);
  }
  assert.equal(content.textContent, "/two");
  click(link("/three"));
  click(new Element("button", { "data-close-artifact": "" }));
  answers["/three"]();
  await new Promise(setImmediate);
  assert.equal(content.textContent, "");
});
