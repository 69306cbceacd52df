// What a new chat was to be takes effect where it comes back with a lost draft.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, openPage } from "./page.mjs";

const { body } = openPage();
const { choicesOf, restoreChoices } = await import("../../../static/js/people/new-chat-choices.js");

const form = new Element("form", { id: "composer" });
const changes = [];

function field(name, properties) {
  const made = Object.assign(new Element("input", { name }), { name, form, ...properties });
  made.addEventListener("change", ({ bubbles }) => changes.push([made.name, made.value, bubbles]));
  body.append(made);
  return made;
}

/** The fields of a page as it opens; the preset "strict" forbids the model "a". */
function open() {
  body.replaceChildren();
  changes.length = 0;
  const options = ["", "a", "b"].map((value) => ({ value, disabled: false }));
  const model = field("model", { type: "select-one", value: "", options });
  const usual = field("preset", { type: "radio", value: "usual", checked: true });
  const strict = field("preset", { type: "radio", value: "strict", checked: false });
  const temporary = field("temporary", { type: "checkbox", value: "on", checked: false });
  strict.addEventListener("change", () => (options[1].disabled = true));
  return { model, usual, strict, temporary };
}

test("each field that changes says so, the preset before the model", () => {
  const { temporary } = open();
  restoreChoices(form, { preset: "strict", model: "b", temporary: "on" });
  assert.equal(temporary.checked, true);
  assert.deepEqual(changes, [
    ["temporary", "on", true],
    ["preset", "strict", true],
    ["model", "b", true],
  ]);
});

test("a field that stays as it is says nothing", () => {
  open();
  restoreChoices(form, { preset: "usual", model: "" });
  assert.deepEqual(changes, []);
});

test("a model that the preset forbids is not chosen", () => {
  const { model } = open();
  restoreChoices(form, { preset: "strict", model: "a" });
  assert.equal(model.value, "");
});

test("what the person has chosen meanwhile stays", () => {
  const { temporary, model } = open();
  temporary.checked = true;
  restoreChoices(form, { model: "b" }, new Set(["temporary"]));
  assert.deepEqual([temporary.checked, model.value], [true, "b"]);
});

test("boxes of tools come back as they were, but one that is new to the page stays", () => {
  open();
  const box = (value, checked) => field("tool", { type: "checkbox", value, checked });
  box("clock", true);
  box("search", false);
  const choices = JSON.parse(JSON.stringify(choicesOf(form)));
  open();
  const boxes = [box("clock", false), box("search", true), box("new", true)];
  restoreChoices(form, choices);
  assert.deepEqual(boxes.map(({ checked }) => checked), [true, false, true]);
  assert.deepEqual(changes.map(([, value]) => value), ["clock", "search"]);
});

test("drafts of earlier versions change no boxes", () => {
  open();
  const box = field("compare", { type: "checkbox", value: "a", checked: true });
  restoreChoices(form, { model: "b" });
  assert.equal(box.checked, true);
});
