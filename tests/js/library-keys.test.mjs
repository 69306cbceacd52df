// Keys that move between the conversations of the library.
import assert from "node:assert/strict";
import test from "node:test";

const announcer = { textContent: "" };
const people = { dataset: { shortcuts: '{"next": "j", "previous": "k"}', noChat: "No more." } };
const body = { dataset: {}, closest: () => null };
const links = [0, 1].map(() => {
  const link = { closest: () => ({ contains: (other) => other === link }) };
  return Object.assign(link, { focus: () => (document.activeElement = link) });
});
let onKey = null;
globalThis.document = {
  body,
  activeElement: body,
  querySelector: (selector) => ({ "#people": people, "#announcer": announcer })[selector] ?? null,
  querySelectorAll: () => links,
  addEventListener: (_, listener) => (onKey = listener),
};
await import("../../static/js/library/keys.js");

const press = (key) => onKey({ key, target: body, preventDefault() {} });

test("a key at the end of the list says that there is no further chat", () => {
  press("j");
  press("j");
  assert.equal(document.activeElement, links[1]);
  assert.equal(announcer.textContent, "");
  press("j");
  assert.equal(document.activeElement, links[1]);
  assert.equal(announcer.textContent, "No more.");
  announcer.textContent = "";
  press("k");
  assert.equal(document.activeElement, links[0]);
  press("k");
  assert.equal(announcer.textContent, "No more.");
});
