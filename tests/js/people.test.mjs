import assert from "node:assert/strict";
import test from "node:test";

// These modules read the page only when they are called.
globalThis.document = { body: { dataset: {} }, querySelector: () => null };

const { matching } = await import("../../static/js/people/completions.js");
const { filled } = await import("../../static/js/people/mentions.js");
const { nameOf } = await import("../../static/js/people/shortcuts.js");

const press = (key, held = {}) =>
  nameOf({
    key,
    ctrlKey: false,
    altKey: false,
    shiftKey: false,
    metaKey: false,
    ...held,
  });

test("a key is named alike with every layout and Caps Lock", () => {
  assert.equal(press("n"), "n");
  assert.equal(press("N"), "n"); // Caps Lock
  assert.equal(press("N", { shiftKey: true }), "Shift+n");
  assert.equal(press("?", { shiftKey: true }), "?");
  assert.equal(press("?"), "?");
  assert.equal(press("F", { ctrlKey: true, shiftKey: true }), "Ctrl+Shift+f");
  assert.equal(press("ArrowUp", { altKey: true }), "Alt+ArrowUp");
  assert.equal(press("я", { metaKey: true }), "Meta+я");
});

test("options that begin with what is typed come first", () => {
  const options = [
    { name: "/answer-mail", about: "" },
    { name: "/mail", about: "" },
    { name: "/x", about: "about mail" },
    { name: "/y", about: "" },
  ];
  const names = matching(options, "/MAIL").map(({ name }) => name);
  assert.deepEqual(names, ["/mail"]);
  const found = matching(options, "mail").map(({ name }) => name);
  assert.deepEqual(found, ["/answer-mail", "/mail", "/x"]);
});

test("values of variables are not searched for variables", () => {
  const row = { text: "{{ a }} {{b}} {{c}}", variables: ["a", "b"] };
  assert.equal(filled(row, ["{{b}}", "$&"]), "{{b}} $& {{c}}");
});
