// The sidebar's list grows when its end comes into sight, also after a request that failed.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, openPage } from "./page.mjs";

const { body } = openPage();
const link = new Element("a", { "data-more": "" });
link.href = "/?chats=40";
const list = new Element("nav", { id: "list", "data-url": "/chats/" }, link);
const conversation = new Element("main", { id: "conversation" });
body.append(list, conversation);
let tell;
const seen = []; // each call of `observe`
globalThis.IntersectionObserver = class {
  constructor(act) {
    tell = act;
  }
  observe(node) {
    seen.push(node);
  }
  disconnect() {}
};
globalThis.MutationObserver = class {
  observe() {}
};
const answers = [];
globalThis.fetch = async () => answers.shift();
globalThis.localStorage = { getItem: () => null };
await import("../../../static/js/library/sidebar.js");

async function comeIntoSight() {
  tell([{ isIntersecting: true }]);
  for (const _ of [1, 2, 3]) await new Promise(setImmediate);
}

test("a list that could not be loaded is loaded later", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const before = seen.length;
  answers.push({ ok: false });
  await comeIntoSight();
  assert.equal(seen.length, before); // the server is left alone for a while
  t.mock.timers.tick(5000);
  assert.equal(seen.length, before + 1);
});

test("a list that was replaced during the request is looked at again", async () => {
  const before = seen.length;
  globalThis.DOMParser = class {
    parseFromString = () => ({ body: new Element("body") });
  };
  answers.push({ ok: true, redirected: false, text: async () => "" });
  const other = new Element("a", { "data-more": "" });
  other.href = link.href;
  tell([{ isIntersecting: true }]);
  link.replaceWith(other);
  for (const _ of [1, 2, 3]) await new Promise(setImmediate);
  assert.equal(seen.length, before + 1);
  assert.equal(seen.at(-1), other);
});
