// Text that streams, where the parser of the pages would take too long.
import assert from "node:assert/strict";
import test from "node:test";

class Element {
  constructor(tag) {
    this.tag = tag;
    this.children = [];
  }
  append(...added) {
    this.children.push(...added);
  }
  appendChild(child) {
    this.children.push(child);
    return child;
  }
  replaceChildren(...children) {
    this.children = children;
  }
  get textContent() {
    return this.children.map((each) => each.textContent ?? String(each)).join("");
  }
}

globalThis.document = {
  createElement: (tag) => new Element(tag),
  createTextNode: (text) => text,
};
const { MarkdownStream } = await import("../../static/js/markdown.js");

for (const unit of ["`", "*", "_", "~"]) {
  test(`a thousand of ${unit} in a row are shown as they are`, () => {
    const root = new Element("div");
    const stream = new MarkdownStream(root);
    const text = `Hello ${unit.repeat(1100)}`;
    for (let end = 100; end <= text.length; end += 100) stream.update(text.slice(0, end));
    stream.update(text);
    stream.end();
    const [shown] = root.children;
    assert.equal(shown.className, "plain");
    assert.equal(shown.textContent, text);
  });
}
