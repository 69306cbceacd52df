// Copying where the browser denies its API: by a text that is selected for a moment.
import assert from "node:assert/strict";
import test from "node:test";

class Box {
  children = [];
  append(child) {
    child.remove = () => this.children.splice(this.children.indexOf(child), 1);
    this.children.push(child);
  }
}

const focused = { focus: () => (document.activeElement = focused) };
let modal = []; // open dialogs
let copied = null; // the text, and where it was selected

globalThis.document = {
  body: new Box(),
  activeElement: focused,
  querySelector: () => null,
  querySelectorAll: () => modal,
  createElement: () => ({
    select() {
      document.activeElement = this;
    },
  }),
  execCommand() {
    const { value } = document.activeElement;
    const box = [...modal, document.body].find(({ children }) => children.length);
    copied = { value, box };
    return true;
  },
};
const { writeText } = await import("../../static/js/reading/clipboard.js");

test("a text is copied in the dialog in front, outside of which nothing is selected", async () => {
  modal = [new Box(), new Box()];
  assert.equal(await writeText("x = 1"), true);
  assert.deepEqual(copied, { value: "x = 1", box: modal[1] });
  assert.equal(copied.box, modal[1]);
  modal = [];
  await writeText("y");
  assert.equal(copied.box, document.body);
  assert.equal(document.body.children.length, 0);
});

test("the focus comes back to where it was", async () => {
  document.activeElement = focused;
  await writeText("x");
  assert.equal(document.activeElement, focused);
});
