// Drafts of new chats: one a tab, found again after a reload, and by the next new tab.
import assert from "node:assert/strict";
import test, { beforeEach } from "node:test";

import { openPage } from "./page.mjs";

openPage();
const { draftOf, namedFiles } = await import("../../../static/js/drafts.js");

let leaving = [];
globalThis.addEventListener = (type, act) => type === "pagehide" && leaving.push(act);

/** A browser's storage: its own properties are what is stored, as in a browser. */
function storage() {
  return Object.create({
    getItem(name) {
      return this[name] ?? null;
    },
    setItem(name, value) {
      this[name] = String(value);
    },
    removeItem(name) {
      delete this[name];
    },
  });
}

beforeEach(() => {
  leaving = [];
  globalThis.localStorage = storage();
});

/** The draft of a page of this tab, which is the storage of its session. */
function open(tab, { user = "1", conversation = "", shown = "" } = {}) {
  globalThis.sessionStorage = tab;
  leaving = [];
  const draft = draftOf(user, conversation, shown);
  const leave = leaving;
  return { draft, leave: () => leave.forEach((act) => act()) };
}

test("each tab with a new chat has its own draft, also after a reload", () => {
  const tabs = [storage(), storage()];
  const pages = tabs.map((tab) => open(tab));
  pages.forEach(({ draft }, number) => draft.store(`Text ${number}`));
  pages.forEach(({ leave }) => leave());
  assert.deepEqual(tabs.map((tab) => open(tab).draft.read()), ["Text 0", "Text 1"]);
});

test("a copy of a tab begins with its draft, and then has its own", () => {
  const [tab, copy] = [storage(), storage()];
  const { draft, leave } = open(tab);
  draft.store("Mine");
  Object.assign(copy, tab);
  const other = open(copy);
  assert.equal(other.draft.read(), "Mine");
  other.draft.store("Changed");
  leave();
  assert.equal(open(tab).draft.read(), "Mine");
});

test("copies of an empty tab have drafts of their own", () => {
  const tab = storage();
  open(tab).leave();
  const pages = [tab, Object.assign(storage(), tab)].map((each) => open(each).draft);
  pages.forEach((draft, number) => draft.store(`Text ${number}`));
  const texts = pages.map(({ name }) => JSON.parse(localStorage.getItem(name)).text);
  assert.deepEqual(texts, ["Text 0", "Text 1"]);
});

test("without locks a draft without a change for an hour is found by a new tab", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  open(storage()).draft.store("Long letter");
  assert.equal(open(storage()).draft.read(), "");
  t.mock.timers.tick(2 * 3600_000);
  assert.equal(open(storage()).draft.read(), "Long letter");
});

/** The locks of a browser, whose pages end their own by `crash(names)`. */
function locksOf(t) {
  const held = new Map();
  const locks = {
    request: async (name, act) => {
      const before = held.get(name);
      const ends = Promise.resolve(before).then(act);
      held.set(name, ends);
      const result = await ends;
      held.delete(name);
      return result;
    },
    query: async () => ({ held: [...held.keys()].map((name) => ({ name })) }),
  };
  const before = navigator.locks;
  const define = (value) =>
    Object.defineProperty(navigator, "locks", { value, configurable: true });
  define(locks);
  t.after(() => define(before));
  return { crash: ({ name }) => held.delete(name) };
}

test("the draft of a tab that crashed is found once, by the next new tab", async (t) => {
  const { crash } = locksOf(t);
  const { draft } = open(storage());
  draft.store("Long letter");
  assert.equal(await open(storage()).draft.readLost(), ""); // it is open
  crash(draft);
  const found = [open(storage()), open(storage())].map((page) => page.draft.readLost());
  assert.deepEqual((await Promise.all(found)).sort(), ["", "Long letter"]);
  assert.deepEqual(Object.keys(localStorage), []);
});

test("a tab that a browser restores after a crash goes on with its own draft", async (t) => {
  const { crash } = locksOf(t);
  const tabs = [storage(), storage()];
  for (const count of [1, 2, 3]) {
    const drafts = tabs.map((tab) => open(tab).draft);
    const texts = await Promise.all(drafts.map((draft) => draft.readLost()));
    if (count > 1) assert.deepEqual(texts, ["Text 0", "Text 1"]);
    drafts.forEach((draft, number) => draft.store(`Text ${number}`));
    drafts.forEach(crash);
    assert.equal(Object.keys(localStorage).length, 2);
  }
});

test("a copy of an open tab has its own draft where the browser has locks", async (t) => {
  locksOf(t);
  const tab = storage();
  const { draft, leave } = open(tab);
  draft.store("Mine");
  const copy = open(Object.assign(storage(), tab)).draft;
  assert.deepEqual([copy.read(), await copy.readLost()], ["", ""]);
  copy.store("Other");
  leave();
  assert.equal(open(tab).draft.read(), "Mine");
});

test("what a closed tab has left is found once, by the next new tab", () => {
  const { draft, leave } = open(storage());
  draft.store("Left");
  assert.equal(open(storage()).draft.read(), ""); // it is open
  leave();
  assert.equal(open(storage()).draft.read(), "Left");
  assert.equal(open(storage()).draft.read(), "");
});

test("another user of the browser does not find it", () => {
  const tab = storage();
  const { draft, leave } = open(tab);
  draft.store("Secret");
  leave();
  for (const each of [tab, storage()]) assert.equal(open(each, { user: "2" }).draft.read(), "");
  assert.equal(open(tab).draft.read(), "Secret");
});

test("a draft that nobody has touched for a month is deleted", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const tab = storage();
  const { draft, leave } = open(tab);
  draft.store("Old");
  leave();
  t.mock.timers.tick(31 * 24 * 3600_000);
  assert.equal(open(tab).draft.read(), "");
  assert.deepEqual(Object.keys(localStorage), []);
});

test("the draft of an earlier version, which all tabs shared, is found", () => {
  localStorage.setItem("parley:draft:1:new", "Before");
  assert.equal(open(storage()).draft.read(), "Before");
  assert.equal(localStorage.getItem("parley:draft:1:new"), null);
});

const inChat = (tab) => open(tab, { conversation: "7" });

test("what is sent in one tab of a chat leaves the draft of another alone", () => {
  const tabs = [storage(), storage()];
  const pages = tabs.map(inChat);
  pages.forEach(({ draft }, number) => draft.store(`Text ${number}`));
  pages[1].draft.store(""); // it is sent
  pages.forEach(({ leave }) => leave());
  assert.deepEqual(tabs.map((tab) => inChat(tab).draft.read()), ["Text 0", ""]);
});

test("what a tab has left in a chat is found by the next tab there, at any age", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const tab = storage();
  inChat(tab).leave(); // it has been there before
  const { draft, leave } = inChat(storage());
  draft.store("Left");
  leave();
  t.mock.timers.tick(100 * 24 * 3600_000);
  assert.equal(open(storage(), { conversation: "8" }).draft.read(), "");
  assert.equal(open(storage()).draft.read(), ""); // a new chat
  assert.equal(inChat(tab).draft.read(), "Left");
});

test("the draft of a chat that an earlier version stored is found", () => {
  localStorage.setItem("parley:draft:1:7", "Before");
  assert.equal(inChat(storage()).draft.read(), "Before");
  assert.equal(localStorage.getItem("parley:draft:1:7"), null);
});

test("what a new chat is to be comes back with its text, also in another tab", () => {
  const tab = storage();
  const { draft, leave } = open(tab);
  draft.store("Private", { temporary: "on" });
  draft.store("Private still", { temporary: "on" });
  leave();
  const again = open(tab);
  assert.deepEqual(again.draft.choices, { temporary: "on" });
  again.leave(); // unchanged
  const other = open(storage());
  assert.deepEqual([other.draft.read(), other.draft.choices], ["Private still", { temporary: "on" }]);
});

const FILE = { id: "f1", name: "report.pdf", content_type: "application/pdf", size: 9 };

test("another tab of a chat has not the files of one that is open", async (t) => {
  const { crash } = locksOf(t);
  const { draft, leave } = inChat(storage());
  draft.storeFiles([FILE]);
  const other = inChat(storage()).draft;
  assert.deepEqual([other.files, await other.readLost(), other.files], [[], "", []]);
  leave();
  crash(draft);
  const [next, last] = [inChat(storage()).draft, inChat(storage()).draft];
  assert.deepEqual([next.files, last.files], [[FILE], []]);
  crash(next);
  const found = inChat(storage()).draft;
  await found.readLost();
  assert.deepEqual(found.files, [FILE]);
});

test("files and text of a draft come back after a reload, until they are sent", () => {
  const tab = storage();
  const { draft, leave } = inChat(tab);
  draft.storeFiles([FILE]);
  draft.store("Text");
  leave();
  const again = inChat(tab);
  assert.deepEqual([again.draft.read(), again.draft.files], ["Text", [FILE]]);
  again.draft.storeFiles([]);
  again.draft.store("");
  again.leave();
  assert.deepEqual(Object.keys(localStorage), []);
});

test("a tab without locks shows at once what a crash has left in a chat, as a copy", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const { draft } = inChat(storage());
  draft.storeFiles([FILE]);
  draft.store("Long letter");
  t.mock.timers.tick(60_000);
  const copy = inChat(storage());
  assert.deepEqual([copy.draft.read(), copy.draft.files], ["Long letter", []]);
  copy.leave(); // unchanged
  assert.deepEqual(Object.keys(localStorage), [draft.name]);
});

/** How the browser opens the next pages. */
function comingBy(t, type) {
  const before = performance.getEntriesByType;
  performance.getEntriesByType = () => [{ type }];
  t.after(() => (performance.getEntriesByType = before));
}

test("choices without a text end where their tab begins a new chat", (t) => {
  const tab = storage();
  const { draft, leave } = open(tab);
  draft.store("", { temporary: "on" }, true);
  leave();
  for (const type of ["navigate", "reload"]) {
    comingBy(t, type);
    const page = open(tab);
    assert.equal(page.draft.choices, undefined);
    assert.equal(Object.keys(localStorage).length, 0);
    page.leave();
  }
});

test("unusual choices without a text are found by their own tab alone", (t) => {
  comingBy(t, "reload");
  const [tab, next] = [storage(), storage()];
  const { draft, leave } = open(tab);
  draft.store("", { model: "usual" });
  assert.equal(Object.keys(localStorage).length, 0);
  draft.store("", { model: "other" }, true);
  leave();
  assert.equal(open(next).draft.choices, undefined);
  const again = open(tab);
  assert.deepEqual(again.draft.choices, { model: "other" });
  again.leave();
  assert.deepEqual(open(tab).draft.choices, { model: "other" });
});

test("a draft with files alone is found again, by its author only", () => {
  const tab = storage();
  const { draft, leave } = open(tab);
  draft.storeFiles([{ stored: "1:a", name: "a.txt" }]);
  leave();
  assert.deepEqual(open(tab, { user: "2" }).draft.files, []);
  assert.deepEqual(open(tab).draft.files, [{ stored: "1:a", name: "a.txt" }]);
});

test("a page that opens with a text of its own leaves the draft of another message", () => {
  const [tab, next] = [storage(), storage()];
  const { draft, leave } = open(tab);
  draft.store("Secret plan", { temporary: "on" });
  draft.storeFiles([{ stored: "1:a", name: "a.txt" }]);
  leave();
  for (const each of [tab, next]) {
    const page = open(each, { shown: "Summarise this" });
    assert.deepEqual([page.draft.read(), page.draft.files, page.draft.choices], ["", [], undefined]);
    page.draft.storeFiles([]); // as the page does that opens
    page.leave();
  }
  const prompt = open(next, { shown: "Summarise this" });
  prompt.draft.store("Summarise that");
  prompt.leave();
  const { draft: own } = open(tab);
  assert.deepEqual([own.read(), own.files.length, own.choices], ["Secret plan", 1, { temporary: "on" }]);
});

test("the draft of another message is there again when its tab has sent a prompt", () => {
  const tab = storage();
  const first = open(tab);
  first.draft.store("Secret plan");
  first.leave();
  const prompt = open(tab, { shown: "Summarise this" });
  prompt.draft.store("Summarise that");
  prompt.leave();
  const again = open(tab);
  assert.equal(again.draft.read(), "Summarise that");
  again.draft.store(""); // it has arrived
  again.leave();
  const last = open(tab);
  assert.equal(last.draft.read(), "Secret plan");
  last.draft.store("");
  last.leave();
  assert.equal(open(tab).draft.read(), "");
  assert.deepEqual(Object.keys(localStorage), []);
});

test("a draft that was sent comes back with the key of that, in its own tab", () => {
  const tab = storage();
  const { draft, leave } = open(tab);
  draft.store("Text");
  draft.storeKey("k1");
  leave();
  const again = open(tab);
  assert.equal(again.draft.key, "k1");
  again.draft.storeKey("k1"); // as the message box does
  again.leave(); // unchanged
  const last = open(tab);
  assert.equal(last.draft.key, "k1");
  assert.ok(!open(storage()).draft.key); // it is open
  last.draft.storeKey("k1");
  last.draft.store("Another");
  last.leave();
  assert.ok(!open(tab).draft.key);
});

test("a page that gives back a refused message goes on with its draft", () => {
  const tab = storage();
  const { draft, leave } = open(tab);
  draft.store("Text");
  leave();
  const again = open(tab, { shown: "Text" });
  assert.equal(again.draft.read(), "Text");
  again.draft.store("");
  again.leave();
  assert.deepEqual(Object.keys(localStorage), []);
});

test("a draft says whether the browser has stored its files", () => {
  const { draft } = open(storage());
  assert.equal(draft.storeFiles([FILE]), true);
  localStorage.setItem = () => {
    throw new Error("full");
  };
  assert.equal(draft.storeFiles([FILE]), false);
});

test("files of all users are named for a month, also where their author stays away", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  assert.deepEqual([...namedFiles()], []);
  for (const user of ["1", "11"]) {
    const { draft, leave } = open(storage(), { user });
    draft.storeFiles([{ stored: `${user}:a`, name: "a.txt" }]);
    leave();
  }
  open(storage()).draft.store("Text");
  t.mock.timers.tick(29 * 24 * 3600_000);
  const { draft } = open(storage(), { user: "3" });
  draft.storeFiles([{ stored: "3:a", name: "a.txt" }]);
  assert.deepEqual([...namedFiles()].sort(), ["11:a", "1:a", "3:a"]);
  t.mock.timers.tick(2 * 24 * 3600_000);
  assert.deepEqual([...namedFiles()], ["3:a"]);
  assert.deepEqual(Object.keys(localStorage), [draft.name]);
});
