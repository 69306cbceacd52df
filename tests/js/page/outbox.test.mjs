// What is kept until its arrival is known: a new chat's messages, and drafts.
import assert from "node:assert/strict";
import test, { beforeEach } from "node:test";

import { Element, addTemplate, openPage, slotted } from "./page.mjs";

class Store extends Map {
  getItem = (name) => this.get(name) ?? null;
  setItem = (name, value) => {
    this.set(name, value);
    this[name] = value; // by which its names are found
  };
  removeItem = (name) => {
    this.delete(name);
    delete this[name];
  };
}

const OUTBOX = "parley:outbox:1:new";
const { body } = openPage();
body.dataset.user = "1";
globalThis.CSS = { supports: () => true };
const leaving = [];
globalThis.addEventListener = (type, act) => type === "pagehide" && leaving.push(act);
const left = [];
globalThis.location = { pathname: "/", search: "", assign: (url) => left.push(url) };
const posted = [];
const ARRIVED = { redirected: true, url: "http://chat.example/chat/9/", status: 200 };
const answers = []; // of the next requests; others find the server well
globalThis.fetch = async (_, { body: sent }) => {
  posted.push(sent.get("key"));
  return answers.shift() ?? ARRIVED;
};
const answer = (status, headers = {}) => ({ status, headers: new Headers(headers), redirected: false });
const key = Object.assign(new Element("input", { name: "key" }), { value: "k9" });
const text = Object.assign(new Element("textarea", { id: "text" }), { value: "" });
const form = new Element("form", { id: "composer" }, key, text);
form.elements = { key };
form.append(Object.assign(new Element("input", { name: "csrfmiddlewaretoken" }), { value: "token" }));
body.append(
  form,
  new Element("div", { id: "composer-errors" }),
  new Element("ul", { id: "attached" }),
  slotted("p", { id: "waits-for-files" }, "words", "cancel"),
  new Element("input", { id: "file" }),
  slotted("details", { id: "send-menu" }),
);
addTemplate("file", slotted("li", {}, "name", "size", "remove", "picture", "progress"));
const { NewChatOutbox } = await import("../../../static/js/people/new-chat-outbox.js");
const { Composer } = await import("../../../static/js/composer.js");
const { giveBackOrphans } = await import("../../../static/js/people/orphans.js");
const { Waiting, isTooOld } = await import("../../../static/js/people/waiting.js");

/** The page's modules hear no more of it. */
function leavePage() {
  for (const act of leaving.splice(0)) act();
  for (const [target, ...heard] of listening.splice(0)) target.removeEventListener(...heard);
}

const listening = [];
const listen = (target) => {
  const { addEventListener } = Object.getPrototypeOf(target);
  target.addEventListener = (type, act, options) => {
    addEventListener.call(target, type, act, options);
    listening.push([target, type, act, options]);
  };
};
for (const target of [form, text, document]) listen(target);

const WORDS = { kept: "Kept", sending: "Sending", refused: "Refused", old: "Too old", newChat: "New chat" };
const minute = 60_000;

beforeEach(() => {
  globalThis.localStorage = new Store();
  globalThis.sessionStorage = new Store();
  document.cookie = "";
  posted.length = left.length = answers.length = 0;
  body.querySelector("#composer-errors").replaceChildren();
});

async function open({ isNew, messages }) {
  localStorage.set(OUTBOX, JSON.stringify(messages));
  new NewChatOutbox("1", WORDS, { isNew, keyDays: 7 }).start();
  await new Promise(setImmediate);
}

const kept = (name, dueAt = 0) => ({ key: name, text: name, fields: [], at: Date.now(), dueAt });
const stored = () => JSON.parse(localStorage.getItem(OUTBOX) ?? "[]");
const shown = () => body.querySelector("#composer-errors").textContent;

test("a chat's page sends all that was kept for new chats, and stays", async () => {
  await open({ isNew: false, messages: [kept("k1"), kept("k2")] });
  assert.deepEqual([posted, left], [["k1", "k2"], []]);
  assert.equal(localStorage.getItem(OUTBOX), null);
});

test("a new chat's page sends one and goes to its chat", async () => {
  await open({ isNew: true, messages: [kept("k1"), kept("k2")] });
  assert.deepEqual([posted, left], [["k1"], ["http://chat.example/chat/9/"]]);
});

test("what another tab is sending is left to it until its time is over", async () => {
  const now = Date.now();
  await open({ isNew: true, messages: [kept("k1", now + minute)] });
  assert.deepEqual([posted, left], [[], []]);
  await open({ isNew: true, messages: [kept("k1", now - 1000)] });
  assert.deepEqual(posted, ["k1"]);
});

test("pauses grow over pages, are the server's if longer, and are shown", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  answers.push(answer(503), answer(503), answer(429, { "Retry-After": "600" }));
  await open({ isNew: false, messages: [kept("k1")] });
  assert.match(shown(), /Sending/);
  const pauses = [];
  for (const count of [1, 2, 3]) {
    assert.equal(posted.length, count);
    const [message] = stored();
    pauses.push((message.dueAt - Date.now()) / 1000);
    await open({ isNew: false, messages: [message] }); // another page does not hurry
    assert.equal(posted.length, count);
    t.mock.timers.tick(message.dueAt - Date.now());
    await new Promise(setImmediate);
  }
  assert.deepEqual(pauses, [5, 10, 600]);
  assert.deepEqual([posted.length, stored()], [4, []]);
});

test("the notice of a pause is not read out again, and goes with its message", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  answers.push(answer(503), answer(503));
  await open({ isNew: false, messages: [kept("k1")] });
  const notice = body.querySelector("#composer-errors .notice");
  for (const isShown of [true, false]) {
    t.mock.timers.tick(minute);
    await new Promise(setImmediate);
    assert.equal(notice.isConnected, isShown);
  }
});

for (const status of [400, 403]) {
  test(`what a chat's page is refused with ${status} waits for a new chat's page`, async () => {
    answers.push(answer(status));
    await open({ isNew: false, messages: [kept("k1"), kept("k2")] });
    assert.deepEqual(posted, ["k1", "k2"]);
    for (const page of [1, 2]) {
      assert.match(shown(), /Refused/, `page ${page}`);
      assert.equal(body.querySelector("#composer-errors a").href, "/");
      body.querySelector("#composer-errors").replaceChildren();
      await open({ isNew: false, messages: stored() });
    }
    assert.deepEqual(posted, ["k1", "k2"]);
    await open({ isNew: true, messages: stored() });
    assert.deepEqual([posted.at(-1), posted.length, stored()], ["k1", 3, []]);
  });
}

test("tabs send one after another where the browser has locks", async () => {
  const { locks } = navigator;
  let before = Promise.resolve();
  const request = (name, act) => (before = before.then(act));
  Object.defineProperty(navigator, "locks", { value: { request }, configurable: true });
  localStorage.set(OUTBOX, JSON.stringify([kept("k1")]));
  for (const isNew of [false, false]) new NewChatOutbox("1", WORDS, { isNew, keyDays: 7 }).start();
  await new Promise(setImmediate);
  Object.defineProperty(navigator, "locks", { value: locks, configurable: true });
  assert.deepEqual(posted, ["k1"]);
});

test("a message of this tab is sent again unless it has arrived", async () => {
  sessionStorage.set("parley:sending", "k1");
  await open({ isNew: false, messages: [kept("k1", Date.now())] });
  assert.deepEqual(posted, ["k1"]); // the reader came by another way than its answer
  sessionStorage.set("parley:sending", "k2");
  document.cookie = "a=b; parley_sent_k2=1";
  await open({ isNew: false, messages: [kept("k2", Date.now())] });
  assert.deepEqual(posted, ["k1"]);
  assert.equal(localStorage.getItem(OUTBOX), null);
});

test("a message that is kept again stays in its order", () => {
  const waiting = new Waiting("1", "new");
  for (const name of ["k1", "k2"]) waiting.add(kept(name));
  waiting.add(kept("k1", 5));
  assert.deepEqual(waiting.messages.map(({ key: name, dueAt }) => [name, dueAt]), [["k1", 5], ["k2", 0]]);
});

test("the draft of a form's message is deleted when it has arrived, not before", () => {
  const draft = "parley:draft:1:7";
  const compose = () => {
    leavePage(); // the page before
    new Composer({ conversation: "7", onSend: () => false, onRefused() {} });
  };
  const submit = new Event("submit", { cancelable: true });
  Object.defineProperty(submit, "submitter", { value: null });
  localStorage.setItem(draft, "Hello");
  text.value = "Hello";
  compose();
  form.dispatchEvent(submit);
  text.value = "";
  document.cookie = "parley_sent_k1=1"; // of an earlier message
  compose(); // of a page after an error of the network
  assert.equal(text.value, "Hello");
  text.value = "";
  form.dispatchEvent(submit);
  text.value = "Hello";
  form.dispatchEvent(submit);
  document.cookie = "parley_sent_k8=1; parley_sent_k9=1";
  compose();
  assert.deepEqual([...localStorage.keys()].filter((name) => name.startsWith(draft)), []);
});

const DAY = 24 * 3600_000;
const old = (name) => ({ ...kept(name), at: Date.now() - 8 * DAY });

test("a message whose key the server has forgotten is given back, and not sent", async () => {
  text.value = "typed since";
  await open({ isNew: true, messages: [old("k1"), kept("k2")] });
  assert.deepEqual(posted, ["k2"]);
  assert.equal(text.value, "k1\n\ntyped since");
  assert.match(shown(), /Too old/);
  assert.deepEqual(stored(), []);
  text.value = "";
});

test("a text that its draft has given back already is given back once", async () => {
  const cases = { k1: "k1", "k1\n\nmore": "k1\n\nmore", k11: "k1\n\nk11" };
  for (const [draft, expected] of Object.entries(cases)) {
    body.querySelector("#composer-errors").replaceChildren();
    text.value = draft;
    await open({ isNew: true, messages: [old("k1")] });
    assert.match(shown(), /Too old/);
    assert.equal(text.value, expected);
  }
  text.value = "";
});

test("several of them are given back in their order", async () => {
  text.value = "typed since";
  await open({ isNew: true, messages: [old("k1"), old("k2")] });
  assert.deepEqual([posted, stored()], [[], []]);
  assert.equal(text.value, "k1\n\nk2\n\ntyped since");
  text.value = "";
});

test("a message that an earlier version stored without a time counts from now on", (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 100 * DAY });
  localStorage.set("parley:outbox:1:7", JSON.stringify([{ key: "k1", text: "Text" }]));
  const found = () => new Waiting("1", "7").messages;
  assert.equal(isTooOld(found()[0], 7), false);
  t.mock.timers.tick(8 * DAY);
  assert.equal(isTooOld(found()[0], 7), true);
});

test("what was typed in a chat that is gone is given back, and never sent", async () => {
  const outbox = () => new Waiting("1", "7");
  outbox().add({ key: "k1", text: "Sent", at: 1 });
  outbox().addUnsent("k2", "Half a");
  // The chat is there again.
  assert.deepEqual([outbox().takeUnsent(), outbox().takeUnsent()], [["Half a"], []]);
  assert.deepEqual(outbox().messages.map(({ text: each }) => each), ["Sent"]);
  const page = new Composer({ conversation: "7", onSend: () => false, onRefused() {} });
  page.giveBack({ text: "Half a" });
  assert.deepEqual([text.value, shown()], ["Half a", ""]); // nothing was refused
  text.value = "";
});

test("the page of a new chat gives it back once the server says that the chat is gone", async (t) => {
  const { fetch } = globalThis;
  t.after(() => (globalThis.fetch = fetch));
  new Waiting("1", "7").addUnsent("k2", "Half a");
  for (const [status, expected] of [[503, ""], [404, "Half a"]]) {
    globalThis.fetch = async () => ({ status });
    await giveBackOrphans("1", text);
    assert.equal(text.value, expected);
  }
  assert.deepEqual(new Waiting("1", "7").messages, []);
  text.value = "";
});

test("the page of another chat leaves it to that of a new chat, and says so", async () => {
  await open({ isNew: false, messages: [old("k1")] });
  assert.match(shown(), /Refused/);
  assert.deepEqual([posted, text.value], [[], ""]);
  await open({ isNew: true, messages: stored() });
  assert.deepEqual([posted, text.value, stored()], [[], "k1", []]);
  text.value = "";
});

test("a request without an answer ends, and the message is sent again later", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  const { timeout } = AbortSignal;
  const limits = [];
  const stalled = new AbortController();
  AbortSignal.timeout = (limit) => limits.push(limit) && stalled.signal;
  answers.push(new Promise((_, reject) => stalled.signal.addEventListener("abort", () => reject(stalled.signal.reason))));
  await open({ isNew: false, messages: [kept("k1")] });
  assert.deepEqual([posted, limits], [["k1"], [minute]]);
  stalled.abort(new DOMException("too long", "TimeoutError"));
  await new Promise(setImmediate);
  const [message] = stored();
  assert.equal(message.failures, 1);
  t.mock.timers.tick(message.dueAt - Date.now());
  await new Promise(setImmediate);
  AbortSignal.timeout = timeout;
  assert.deepEqual([posted, stored()], [["k1", "k1"], []]);
});

test("a round that fails keeps no later round from sending", async () => {
  const { locks } = navigator;
  const { addEventListener: listen } = globalThis;
  let wake;
  globalThis.addEventListener = (type, act) => type === "online" && (wake = act);
  let isBroken = true;
  const request = async (_, act) => {
    if (isBroken) throw new DOMException("the tab is frozen", "InvalidStateError");
    return act();
  };
  Object.defineProperty(navigator, "locks", { value: { request }, configurable: true });
  const failures = [];
  globalThis.reportError = (error) => failures.push(error.name);
  await open({ isNew: false, messages: [kept("k1")] });
  await new Promise(setImmediate);
  isBroken = false;
  wake();
  await new Promise(setImmediate);
  Object.defineProperty(navigator, "locks", { value: locks, configurable: true });
  globalThis.addEventListener = listen;
  assert.deepEqual([posted, failures], [["k1"], ["InvalidStateError"]]);
});

test("a new chat's text larger than the server accepts is not stored to be sent", async (t) => {
  t.after(() => {
    delete form.dataset.maxText;
    listen(document);
    globalThis.FormData = Usual;
    [key.value, text.value] = ["k9", ""];
  });
  const Usual = FormData;
  globalThis.FormData = class extends Map {
    constructor() {
      super([["key", "k9"], ["text", text.value]]);
    }
  };
  let submitted;
  document.addEventListener = (type, act) => type === "submit" && (submitted = act);
  await open({ isNew: true, messages: [] });
  form.dataset.maxText = "9"; // bytes
  for (const [words, count] of [["\u{1f600}\u{1f600}ab", 0], ["\u{1f600}\u{1f600}a", 1]]) {
    text.value = words;
    submitted({ target: form, submitter: null });
    assert.equal(stored().length, count);
  }
  form.dataset.maxText = ""; // a page without a limit
  [key.value, text.value] = ["k10", "Hello"];
  submitted({ target: form, submitter: null });
  assert.deepEqual(stored().map(({ text: each }) => each), ["\u{1f600}\u{1f600}a", "Hello"]);
});

test("a page that opens with its draft's text goes on with its choices and its key", (t) => {
  t.after(() => (key.value = "k9"));
  const temporary = Object.assign(new Element("input", { name: "temporary" }), {
    ...{ name: "temporary", type: "checkbox", value: "on", checked: true, form },
  });
  body.append(temporary);
  form.dataset.scripted = "";
  leavePage();
  text.value = "Summarise this";
  const open = () => new Composer({ conversation: undefined, onSend: () => false, onRefused() {} });
  open();
  document.dispatchEvent(Object.defineProperty(new Event("change"), "target", { value: temporary }));
  const submit = new Event("submit", { cancelable: true });
  form.dispatchEvent(Object.defineProperty(submit, "submitter", { value: null }));
  leavePage();
  temporary.checked = false; // as each page begins
  key.value = "k10";
  open();
  assert.deepEqual([temporary.checked, key.value], [true, "k9"]);
  leavePage();
  key.value = "k11";
  body.querySelector("#composer-errors").append(new Element("p", { class: "is-error" }));
  open();
  assert.equal(key.value, "k11"); // the server has refused the other
  temporary.remove();
  text.value = "";
});

/** A new chat's page, whose draft was sent with the key k1 while the outbox has that. */
async function openSent(t, words) {
  t.after(() => {
    listen(document);
    globalThis.FormData = Usual;
    text.value = "";
    key.value = "k9";
  });
  const Usual = FormData;
  globalThis.FormData = class extends Map {
    constructor(_, submitter) {
      super([["text", text.value], ...(submitter ? [["suggestion", submitter.value]] : [])]);
    }
  };
  let submitted;
  document.addEventListener = (type, act) => type === "submit" && (submitted = act);
  leavePage();
  const draft = "parley:draft:1:new";
  sessionStorage.set(draft, `${draft}:d1`);
  localStorage.setItem(`${draft}:d1`, JSON.stringify({ text: words, key: "k1", at: Date.now(), isLeft: true }));
  key.value = "k2";
  await open({ isNew: true, messages: [{ ...kept("k1", Date.now() + minute), text: words }] });
  new Composer({ conversation: undefined, onSend: () => false, onRefused() {} });
  const submit = (submitter = null) => {
    const event = new Event("submit", { cancelable: true });
    submitted({ target: form, submitter, preventDefault() {}, stopImmediatePropagation() {} });
    form.dispatchEvent(Object.defineProperty(event, "submitter", { value: submitter }));
  };
  return submit;
}

const draftKeys = () =>
  [...localStorage].filter(([name]) => name.startsWith("parley:draft:1:new:")).map(([, draft]) => JSON.parse(draft).key);

test("another text than the restored one is sent beside it, with a key of its own", async (t) => {
  const submit = await openSent(t, "First");
  assert.deepEqual([text.value, key.value, draftKeys()], ["First", "k1", ["k1"]]);
  submit();
  assert.deepEqual(stored().map(({ key: each }) => each), ["k1"]); // the same is sent once
  for (const words of ["", "Second"]) {
    text.value = words;
    text.dispatchEvent(new Event("input"));
  }
  submit();
  assert.deepEqual(stored().map(({ text: each }) => each), ["First", "Second"]);
  assert.deepEqual(draftKeys(), [stored()[1].key]);
});

test("a suggestion is sent beside the restored text, whose draft has not its key", async (t) => {
  const submit = await openSent(t, "First");
  const suggestion = Object.assign(new Element("button", { name: "suggestion" }), {
    ...{ name: "suggestion", value: "Plan a trip" },
  });
  submit(suggestion);
  assert.deepEqual(stored().map(({ text: each }) => each), ["First", "Plan a trip"]);
  assert.equal(stored()[1].key, key.value);
  assert.deepEqual(draftKeys(), ["k1"]);
  leavePage();
  document.cookie = `parley_sent_${key.value}=1`;
  new Composer({ conversation: "9", onSend() {}, onRefused() {} });
  assert.deepEqual(draftKeys(), ["k1"]);
});

test("a suggestion that waits for the connection leaves the typed text in the box", async (t) => {
  const submit = await openSent(t, "First");
  t.after(() => (navigator.onLine = true));
  navigator.onLine = false;
  submit(Object.assign(new Element("button", { name: "suggestion" }), { name: "suggestion", value: "Plan a trip" }));
  assert.deepEqual(stored().map(({ text: each }) => each), ["First", "Plan a trip"]);
  assert.equal(text.value, "First");
});

test("a message is not sent without a file that cannot be read", async (t) => {
  const attached = body.querySelector("#attached");
  t.after(() => {
    attached.replaceChildren();
    text.value = "";
  });
  leavePage();
  sessionStorage.set("parley:draft:1:new", "parley:draft:1:new:d1");
  const files = [{ stored: "1:a", name: "plan.txt", content_type: "text/plain", size: 4 }];
  localStorage.setItem("parley:draft:1:new:d1", JSON.stringify({ text: "Read it", files, at: Date.now(), isLeft: true }));
  let isSent = false;
  new Composer({ conversation: undefined, onSend: () => (isSent = true), onRefused() {} });
  await new Promise(setImmediate);
  for (const _ of [1, 2]) {
    body.querySelector("#composer-errors").replaceChildren();
    const submit = new Event("submit", { cancelable: true });
    form.dispatchEvent(Object.defineProperty(submit, "submitter", { value: null }));
    assert.deepEqual([isSent, submit.defaultPrevented], [false, true]);
    assert.match(shown(), /“plan.txt” cannot be read now/);
  }
  assert.equal(text.value, "Read it");
});

test("sizes that look alike are compared in bytes", () => {
  form.dataset.maxText = "1000000";
  for (const [size, words] of [[1_200_000, "1.2 MB; the limit is 1 MB"], [1_000_001, "1,000,001 bytes; the limit is 1,000,000 bytes"]]) {
    text.value = "a".repeat(size);
    const submit = new Event("submit", { cancelable: true });
    Object.defineProperty(submit, "submitter", { value: null });
    new Composer({ conversation: "7", onSend() {}, onRefused() {} });
    form.dispatchEvent(submit);
    assert.match(shown(), new RegExp(words));
  }
  delete form.dataset.maxText;
  text.value = "";
});

test("a text larger than the server accepts stays in the box", (t) => {
  t.after(() => {
    delete form.dataset.maxText;
    text.value = "";
  });
  leavePage();
  const sent = [];
  new Composer({ conversation: "7", onSend: (words) => sent.push(words), onRefused() {} });
  form.dataset.maxText = "9"; // bytes
  for (const words of ["\u{1f600}\u{1f600}", "\u{1f600}\u{1f600}ab"]) {
    text.value = words;
    const submit = new Event("submit", { cancelable: true });
    Object.defineProperty(submit, "submitter", { value: null });
    form.dispatchEvent(submit);
  }
  assert.deepEqual(sent, ["\u{1f600}\u{1f600}"]);
  assert.equal(text.value, "\u{1f600}\u{1f600}ab");
});
