// Forms that are sent in place, where the session has ended or the network is gone.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, openPage } from "./page.mjs";

const { body } = openPage();
body.dataset.user = "1";
const left = [];
globalThis.location = { pathname: "/chat/1/", search: "", assign: (url) => left.push(url) };
globalThis.addEventListener = () => {};
globalThis.DOMParser = class {
  parseFromString = () => ({
    body: new Element("body"), querySelector: () => null, querySelectorAll: () => [],
  });
};
const announcer = new Element("p", { id: "announcer" });
body.append(announcer, new Element("div", { id: "reading", "data-rated": "Rated" }));
const notice = new Element("dialog", {}, new Element("h1", {}, "You are signed out"));
notice.cloneNode = () => Object.assign(notice, { showModal: () => (covered += 1) });
let covered = 0;
const template = new Element("template", { id: "signed-out" });
template.content = new Element("div", {}, notice);
body.append(template);

const { openInDialog } = await import("../../../static/js/dialog.js");
const { rateInPlace } = await import("../../../static/js/reading/rating.js");
const { chooseTools } = await import("../../../static/js/tools.js");
const { openInstead, fetched } = await import("../../../static/js/dom.js");
const { watchForms } = await import("../../../static/js/people/cover.js");

const REDIRECTED = { type: "opaqueredirect", status: 0 };
const SIGN_IN = { ok: true, redirected: true, url: "http://chat.example/login/", text: async () => "" };
const SIGNED_IN = { ok: true, redirected: false, url: "http://chat.example/chats/" };

/** Posts are answered thus; `page` is what other requests get. */
function answer(post, page) {
  globalThis.fetch = async (_, { method } = {}) => {
    const found = method === "POST" ? post : page;
    if (!found) throw new TypeError("Failed to fetch");
    return found;
  };
}

globalThis.FormData = class {
  append() {}
  set() {}
  get = () => "good";
};

function formOf(className) {
  const button = new Element("button", { "data-rate": "good" });
  const form = new Element("form", { class: className, action: "/there/" }, button);
  form.setAttribute("data-in-place", "");
  form.submit = () => left.push("the form's page");
  return form;
}

async function submit(place, form) {
  await happens(place, "submit", { target: form, submitter: form.children[0] });
}

/** The event reaches the listener of this element, as if it had bubbled. */
async function happens(place, type, fields) {
  const event = new Event(type);
  for (const [name, value] of Object.entries(fields)) Object.defineProperty(event, name, { value });
  place.dispatchEvent(event);
  await new Promise(setImmediate);
}

const dialog = Object.assign(new Element("dialog", { id: "dialog" }), { close: () => (closed += 1) });
let closed = 0;
let saved = 0;
body.append(dialog);
openInDialog(async () => (saved += 1));
rateInPlace();
const PLACES = [["sheet", dialog], ["rating", document]];

for (const [name, place] of PLACES) {
  test(`a ${name} that the network did not carry stays, with a notice`, async () => {
    const form = formOf(name);
    answer(null, null);
    await submit(place, form);
    assert.match(form.textContent, /could not be sent/);
    assert.ok(!form.children.at(-1).disabled);
    assert.deepEqual([left, closed, saved, announcer.textContent], [[], 0, 0, ""]);
  });

  test(`a ${name} of a session that has ended is not taken as saved`, async () => {
    const form = formOf(name);
    answer(REDIRECTED, SIGN_IN);
    await submit(place, form);
    assert.match(form.textContent, /could not be sent/);
    assert.deepEqual([left.splice(0), closed, saved, announcer.textContent], [["/chat/1/"], 0, 0, ""]);
  });
}

for (const [name, place] of PLACES) {
  for (const [status, words] of [[404, /gone/], [403, /refused/], [500, /could not be sent/]]) {
    test(`a ${name} answered by another page with ${status} says what to do`, async () => {
      const form = formOf(name);
      answer({ type: "basic", status, text: async () => "" }, SIGNED_IN);
      await submit(place, form);
      assert.match(form.textContent, words);
      assert.ok(!form.children.at(-1).disabled);
    });
  }
}

test("a dialog's form that was refused has the focus where something is wrong", async () => {
  const before = globalThis.DOMParser;
  const field = new Element("input");
  const problem = new Element("p", { class: "field-error" }, "Too long");
  const fresh = new Element("form", {}, new Element("div", { class: "field" }, field, problem));
  globalThis.DOMParser = class {
    parseFromString = () => ({ querySelector: () => fresh });
  };
  answer({ type: "basic", status: 400, text: async () => "" }, SIGNED_IN);
  await submit(dialog, formOf("sheet"));
  globalThis.DOMParser = before;
  assert.equal(document.activeElement, field);
  assert.equal(problem.getAttribute("role"), "alert");
  assert.equal(fresh.parentElement, dialog);
});

test("the contents of a dialog are there before it opens", async () => {
  const form = new Element("form", {}, new Element("h1", {}, "Delete?"));
  const before = globalThis.DOMParser;
  globalThis.DOMParser = class {
    parseFromString = () => ({ querySelector: () => form });
  };
  const link = Object.assign(new Element("a", { "data-dialog": "" }), { href: "/chat/1/delete/" });
  body.append(link, new Element("div", { id: "sidebar" }));
  const opened = [];
  dialog.showModal = () => opened.push(dialog.children[0]);
  answer(null, { ok: true, redirected: false, url: link.href, text: async () => "" });
  await happens(document, "click", { target: link });
  globalThis.DOMParser = before;
  assert.deepEqual(opened, [form]);
});

test("a form that was saved leaves the dialog", async () => {
  answer(REDIRECTED, SIGNED_IN);
  await submit(dialog, formOf("sheet"));
  assert.deepEqual([closed, saved], [1, 1]);
});

test("a choice of tools is not taken as saved by a session that has ended", async () => {
  const menu = new Element("details", { id: "tools" }, new Element("span", { "data-slot": "count" }));
  const token = new Element("input", { name: "csrfmiddlewaretoken" });
  const errors = new Element("div", { id: "composer-errors" });
  body.append(menu, new Element("form", { id: "composer" }, token), errors);
  chooseTools("/tools/");
  answer(REDIRECTED, SIGN_IN);
  await happens(menu, "change", {});
  assert.match(errors.textContent, /could not be saved/);
  left.length = 0;
});

test("a request after the end of the session covers what is not saved", async () => {
  watchForms();
  answer(null, SIGN_IN);
  await assert.rejects(fetched("/chats/"));
  assert.deepEqual(left.splice(0), ["/chat/1/"]);
  const target = { form: new Element("form", { method: "post" }) };
  await happens(document, "input", { target });
  for (const _ of [1, 2]) {
    const error = await fetched("/chats/").catch((found) => found);
    openInstead("/chat/1/delete/", error);
  }
  assert.deepEqual([left, covered], [[], 1]);
});
