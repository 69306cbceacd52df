// A message that waits for its files.
import assert from "node:assert/strict";
import test, { mock } from "node:test";

import { Element, addTemplate, openPage, slotted } from "./page.mjs";

mock.timers.enable({ apis: ["setTimeout"] }); // of uploads that hang
const { body } = openPage();
body.dataset.user = "1";
const note = slotted("p", { id: "waits-for-files" }, "words", "cancel");
note.hidden = true;
body.append(
  new Element("form", { id: "composer", "data-max-size": "1000", "data-max-count": "5" }),
  new Element("ul", { id: "attached" }),
  new Element("input", { id: "file" }),
  new Element("input", { name: "csrfmiddlewaretoken" }),
  new Element("p", { id: "announcer" }),
  new Element("textarea", { id: "text" }),
  note,
);
addTemplate("file", slotted("li", {}, "name", "size", "remove", "picture", "progress"));
globalThis.addEventListener = () => {};
const stored = new Map();
globalThis.localStorage = {
  getItem: (name) => stored.get(name) ?? null,
  setItem: (name, text) => stored.set(name, text),
  removeItem: (name) => stored.delete(name),
};
const requests = [];
globalThis.XMLHttpRequest = class {
  upload = {};
  open() {}
  setRequestHeader() {}
  abort() {
    this.isAborted = true;
    this.onloadend();
  }
  send() {
    requests.push(this);
  }
};
const { Files } = await import("../../../static/js/files.js");

test("a message is not sent without the file that failed", () => {
  const complaints = [];
  const files = new Files({ conversation: "1", url: "/up/", draft: draftWith([]), complain: (why) => complaints.push(why) });
  files.add([new File(["one"], "one.txt"), new File(["two"], "two.txt")]);
  let sent = 0;
  files.whenReady(() => (sent += 1));
  const [one, two] = requests;
  one.onerror();
  Object.assign(two, { status: 201, response: { data: [{ id: "2", name: "two.txt", content_type: "text/plain" }] } });
  two.onload();
  assert.equal(sent, 0);
  assert.deepEqual(complaints, ["“one.txt” could not be sent. Try again."]);
  files.add([new File(["one"], "one.txt")]);
  files.whenReady(() => (sent += 1));
  const [, , again] = requests;
  Object.assign(again, { status: 201, response: { data: [{ id: "1", name: "one.txt", content_type: "text/plain" }] } });
  again.onload();
  assert.equal(sent, 1);
});

/** The draft of a tab, which stores its files. */
function draftWith(files) {
  return {
    files,
    storeFiles(now) {
      this.files = now;
    },
  };
}

/** A message that waits for one file: its request, and how often it was sent. */
function waiting() {
  document.querySelector("#attached").replaceChildren();
  stored.clear();
  const complaints = [];
  const files = new Files({ conversation: "1", url: "/up/", draft: draftWith([]), complain: (why) => complaints.push(why) });
  files.add([new File(["big"], "big.txt")]);
  const seen = { files, complaints, request: requests.at(-1), sent: 0 };
  files.whenReady(() => (seen.sent += 1));
  return seen;
}

const press = (name) => document.body.querySelector(`[data-slot="${name}"]`).dispatchEvent(new Event("click"));

function arrive(request) {
  Object.assign(request, { status: 201, response: { data: [{ id: "3", name: "big.txt", content_type: "text/plain" }] } });
  request.onload();
}

test("the page says that a message waits for its files, until it is sent", () => {
  const seen = waiting();
  assert.equal(note.hidden, false);
  arrive(seen.request);
  assert.equal(note.hidden, true);
  assert.equal(seen.sent, 1);
});

test("a message whose file is removed meanwhile is not sent", () => {
  const seen = waiting();
  press("remove");
  assert.equal(seen.sent, 0);
  assert.equal(note.hidden, true);
});

test("a message that is changed or cancelled meanwhile is not sent", () => {
  const changed = waiting();
  changed.files.stopWaiting(); // which the message box calls
  arrive(changed.request);
  const cancelled = waiting();
  press("cancel");
  arrive(cancelled.request);
  const grown = waiting();
  grown.files.add([new File(["more"], "more.txt")]);
  arrive(grown.request);
  assert.deepEqual([changed.sent, cancelled.sent, grown.sent], [0, 0, 0]);
  assert.equal(note.hidden, true);
});

test("an upload that hangs fails, one that goes on does not", () => {
  const seen = waiting();
  mock.timers.tick(50_000);
  seen.request.upload.onprogress({ loaded: 1, total: 3 });
  mock.timers.tick(50_000);
  assert.equal(seen.files.isBusy, true);
  mock.timers.tick(10_000);
  assert.equal(seen.request.isAborted, true);
  assert.equal(seen.files.isBusy, false);
  assert.deepEqual(seen.complaints, ["“big.txt” could not be sent. Try again."]);
  assert.equal(seen.sent, 0);
});

test("a refusal names its file, also one whose name is part of its words", () => {
  for (const [name, message, expected] of [
    ["a", "The virus scanner refuses this file.", "“a” The virus scanner refuses this file."],
    ["a", "“a” is empty.", "“a” is empty."],
    ["plan", "« plan » est vide.", "« plan » est vide."],
    ["leer.txt", "Die Datei „leer.txt“ ist leer.", "Die Datei „leer.txt“ ist leer."],
  ]) {
    const complaints = [];
    const files = new Files({ conversation: "1", url: "/up/", draft: draftWith([]), complain: (why) => complaints.push(why) });
    files.add([new File(["text"], name)]);
    const request = requests.at(-1);
    Object.assign(request, { status: 415, response: { error: { message } } });
    request.onload();
    assert.deepEqual(complaints, [expected]);
  }
});

test("an upload whose last byte has left has time until the server has stored it", () => {
  const seen = waiting();
  seen.request.upload.onprogress({ loaded: 3, total: 3 });
  seen.request.upload.onload();
  mock.timers.tick(61_000);
  assert.deepEqual([seen.request.isAborted, seen.files.isBusy], [undefined, true]);
  arrive(seen.request);
  assert.equal(seen.sent, 1);
});

test("an upload that the server never answers fails too", () => {
  const seen = waiting();
  seen.request.upload.onload();
  mock.timers.tick(600_000);
  assert.equal(seen.request.isAborted, true);
  assert.equal(seen.complaints.length, 1);
});

test("uploaded files are stored in the tab's draft, and come back from it", () => {
  const draft = draftWith([]);
  const files = new Files({ conversation: "2", url: "/up/", draft, complain() {} });
  files.add([new File(["text"], "big.txt")]);
  arrive(requests.at(-1));
  assert.deepEqual(draft.files.map(({ id }) => id), ["3"]);
  const again = new Files({ conversation: "2", url: "/up/", draft: draftWith(draft.files), complain() {} });
  assert.deepEqual(again.take().map(({ file_id: id }) => id), ["3"]);
  files.take();
  assert.deepEqual(draft.files, []);
});

test("files that an earlier version stored for all tabs are the first tab's", () => {
  stored.set("parley:files:1:2", JSON.stringify([{ id: "f0", name: "a.txt", content_type: "text/plain" }]));
  const tabs = [1, 2].map(() => new Files({ conversation: "2", url: "/up/", draft: draftWith([]), complain() {} }));
  assert.deepEqual(tabs.map((files) => files.take().length), [1, 0]);
  assert.equal(stored.has("parley:files:1:2"), false);
});
