// Answers that come late, fail, or are not asked for.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, addTemplate, openPage } from "./page.mjs";

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
const { showQuestions } = await import("../../../static/js/questions.js");
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
