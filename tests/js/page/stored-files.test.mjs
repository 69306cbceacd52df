// Files of a new chat that the browser has stored, where its database fails or hangs.
import assert from "node:assert/strict";
import test, { beforeEach, mock } from "node:test";

import { Element, addTemplate, openPage, slotted } from "./page.mjs";

mock.timers.enable({ apis: ["setTimeout"] }); // of a database that hangs
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
globalThis.addEventListener = () => {};
globalThis.localStorage = Object.create({
  getItem(name) {
    return this[name] ?? null;
  },
  setItem() {},
  removeItem() {},
});
globalThis.IDBKeyRange = { bound: () => null };

let database; // of the browser: its files, and what its next openings come to
globalThis.indexedDB = {
  open() {
    const request = { result: { transaction, close() {} } };
    const end = database.endings.shift() ?? "onsuccess";
    queueMicrotask(() => request[end]?.());
    return request;
  },
};

function transaction() {
  const made = { objectStore: () => ({ get, put, getAllKeys, delete: remove }) };
  const done = (result) => {
    queueMicrotask(() => made.oncomplete());
    return { result };
  };
  const get = (name) => done(database.files.get(name));
  const put = (file, name) => done(database.files.set(name, file));
  const getAllKeys = () => done([...database.files.keys()]);
  const remove = (name) => done(database.files.delete(name));
  return made;
}

const { Files } = await import("../../../static/js/files.js");
const { removeUnnamed } = await import("../../../static/js/stored-files.js");

const NOTE = { name: "plan.txt", size: 4, content_type: "text/plain", stored: "1:a" };

beforeEach(() => {
  document.querySelector("#attached").replaceChildren();
  database = { files: new Map([["1:a", new File(["text"], "plan.txt")]]), endings: [] };
});

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A page with a draft that names the stored file. */
function open() {
  const page = { complaints: [], named: [NOTE] };
  const draft = {
    files: [NOTE],
    storeFiles(files) {
      page.named = files;
      return !page.isFull;
    },
  };
  page.files = new Files({ conversation: "", draft, complain: (why) => page.complaints.push(why) });
  return page;
}

test("a database that fails once is read again", async () => {
  database.endings = ["onerror"];
  const { files, complaints, named } = open();
  await settled();
  assert.deepEqual([files.isBusy, files.isEmpty, complaints], [false, false, []]);
  assert.deepEqual(named, [NOTE]);
});

for (const ending of ["onerror", "never"]) {
  test(`a file that cannot be read stays in the draft, and nothing waits (${ending})`, async () => {
    database.endings = [ending, ending];
    const page = open();
    for (const _ of database.endings.concat("")) {
      await settled();
      mock.timers.tick(60_000);
    }
    await settled();
    assert.deepEqual([page.files.isBusy, page.files.isEmpty], [false, false]);
    const words = "“plan.txt” cannot be read now. Reload the page to try again.";
    assert.deepEqual([page.complaints, page.files.problem], [[words], words]);
    for (const count of [2, 3, 4, 5, 6]) page.files.add([new File(["more"], `${count}.txt`)]);
    assert.equal(page.complaints.at(-1), "A message may have 5 files.");
    assert.deepEqual(page.named.map(({ name }) => name), ["plan.txt", "2.txt", "3.txt", "4.txt", "5.txt"]);
    const [row] = document.querySelectorAll("#attached li");
    row.querySelector("[data-slot=remove]").dispatchEvent(new Event("click"));
    assert.deepEqual([page.files.problem, page.named.length], [undefined, 4]);
  });
}

test("a file that is gone is no longer in the draft", async () => {
  database.files.clear();
  const page = open();
  await settled();
  assert.deepEqual(page.complaints, ["“plan.txt” is no longer there. Choose it again."]);
  assert.deepEqual([page.files.isEmpty, page.named], [true, []]);
});

test("the browser stores no file that its draft cannot name", async () => {
  const page = open();
  await settled();
  page.isFull = true;
  page.files.add([new File(["more"], "more.txt")]);
  await settled();
  assert.deepEqual([...database.files.keys()], ["1:a"]);
  page.isFull = false;
  page.files.add([new File(["third"], "third.txt")]);
  await settled();
  assert.equal(database.files.size, 2);
});

test("a file whose draft this tab learns of a moment later is not removed", async (t) => {
  const draft = "parley:draft:1:new:d1";
  t.after(() => delete localStorage[draft]);
  database.files.set("1:b", new File(["old"], "old.txt"));
  removeUnnamed();
  await settled();
  localStorage[draft] = JSON.stringify({ text: "", files: [NOTE], at: Date.now() });
  mock.timers.tick(10_000);
  await settled();
  assert.deepEqual([...database.files.keys()], ["1:a"]);
});
