// A page whose user is signing out stores nothing more of what they wrote.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, addTemplate, openPage, slotted } from "./page.mjs";

const { body } = openPage();
body.dataset.user = "1";
body.append(
  new Element("form", { id: "composer", "data-max-size": "1000", "data-max-count": "5" }),
  new Element("ul", { id: "attached" }),
  new Element("input", { id: "file" }),
  new Element("p", { id: "announcer" }),
  new Element("textarea", { id: "text" }),
  slotted("p", { id: "waits-for-files" }, "words", "cancel"),
);
addTemplate("file", slotted("li", {}, "name", "size", "remove", "picture", "progress"));
let leave;
globalThis.addEventListener = (type, act) => type === "pagehide" && (leave = act);
class Store {
  getItem = (name) => this[name] ?? null;
  setItem = (name, text) => (this[name] = String(text));
  removeItem = (name) => delete this[name];
}
globalThis.localStorage = new Store();
globalThis.sessionStorage = new Store();
globalThis.IDBKeyRange = { bound: () => null };
const files = new Map();
globalThis.indexedDB = {
  open() {
    const request = { result: { transaction, close() {} } };
    queueMicrotask(() => request.onsuccess());
    return request;
  },
};

function transaction() {
  const made = { objectStore: () => ({ put, delete: () => done(files.clear()) }) };
  const done = (result) => {
    queueMicrotask(() => made.oncomplete());
    return { result };
  };
  const put = (file, name) => done(files.set(name, file));
  return made;
}

const { draftOf } = await import("../../../static/js/drafts.js");
const { Files } = await import("../../../static/js/files.js");
const { forgetOnSignOut } = await import("../../../static/js/people/sign-out.js");
const { Waiting } = await import("../../../static/js/people/waiting.js");

const names = () => Object.keys(localStorage).filter((name) => /:1:/.test(name));

test("what ends or is typed while a user signs out is not stored", async () => {
  let decode; // ends the work on the picture
  globalThis.createImageBitmap = () => new Promise((_, reject) => (decode = reject));
  const draft = draftOf("1", "");
  const added = new Files({ conversation: "", draft, complain() {} });
  added.add([new File(["text"], "plan.txt"), new File(["dots"], "dot.png", { type: "image/png" })]);
  draft.store("Secret");
  const outbox = new Waiting("1", "new");
  outbox.add({ key: "k1", text: "Secret", at: 1 });
  await new Promise(setImmediate);
  assert.deepEqual([names().length, files.size], [2, 1]);

  let isSent = false;
  globalThis.HTMLFormElement = { prototype: { submit: () => (isSent = true) } };
  forgetOnSignOut("1");
  const target = new Element("form", { action: "/accounts/logout/" });
  const event = new Event("submit", { cancelable: true });
  document.dispatchEvent(Object.defineProperty(event, "target", { value: target }));
  decode(new Error("no picture"));
  draft.store("Secret plan");
  assert.equal(outbox.add({ key: "k1", text: "Secret", at: 1 }), false);
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  leave();
  assert.deepEqual([isSent, names(), files.size], [true, [], 0]);
});
