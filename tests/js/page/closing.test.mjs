// Escape closes what is open without throwing away what is typed in it.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, openPage } from "./page.mjs";

const { body } = openPage();
const area = Object.assign(new Element("textarea"), { value: "Hello", defaultValue: "Hello" });
const cancel = new Element("a", { "data-cancel": "" });
const form = new Element("form", { class: "edit-message" }, area, cancel);
const menu = Object.assign(new Element("details", { class: "user-menu", open: "" }), { open: true });
let closed = 0;
cancel.click = () => (closed += 1);

const { closeInnermost } = await import("../../../static/js/closing.js");

test("an editor elsewhere stays open as long as its text is changed", () => {
  body.append(form);
  area.value = "Hello, and a long text";
  document.activeElement = body;
  assert.deepEqual([closeInnermost(), closed], [false, 0]);
  area.value = area.defaultValue;
  assert.deepEqual([closeInnermost(), closed], [true, 1]);
});

test("an editor that has the focus closes", () => {
  area.value = "Hello, and a long text";
  document.activeElement = area;
  assert.deepEqual([closeInnermost(), closed], [true, 2]);
});

test("a menu closes though a text is changed elsewhere", () => {
  body.append(menu);
  document.activeElement = body;
  assert.deepEqual([closeInnermost(), menu.open, closed], [true, false, 2]);
});
