// What a tab shows whose reader is elsewhere.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, openPage } from "./page.mjs";

const { body } = openPage();
document.hidden = true;
body.dataset.user = "1";
body.append(
  new Element("div", { id: "people", "data-notify-browser": "", "data-notify-title": "" }),
  new Element("button", { id: "sound", "data-ready": "An answer is ready" }),
  new Element("h1", { class: "bar-title" }, "Rivers"),
  Object.assign(new Element("link", { rel: "icon", "data-badge": "/new.svg" }), { href: "/usual.svg" }),
);
globalThis.localStorage = { getItem: () => null };
globalThis.Notification = class {
  static permission = "granted";
  constructor() {
    throw new TypeError("Illegal constructor. Use ServiceWorkerRegistration.showNotification()");
  }
};
const shown = [];
const registration = { showNotification: async (...note) => shown.push(note) };
const navigator = { serviceWorker: { ready: Promise.resolve(registration) } };
Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true });
document.title = "Rivers – Parley";
const { countElsewhere, notifyOf, showTitle, watchAbsence } = await import("../../../static/js/notify/notify.js");

test("the service worker shows it where the page may not", async () => {
  notifyOf("ready");
  await navigator.serviceWorker.ready;
  await null;
  const [[title, { body, tag }]] = shown;
  assert.deepEqual([title, body, tag], ["An answer is ready", "Rivers", "/chat/1/"]);
});

const list = new Element("nav", { id: "list" });
body.append(list);

/** The list has a new answer in the rows with these keys. */
function showUnread(...keys) {
  const dot = () => new Element("span", { class: "unread" });
  list.replaceChildren(...keys.map((key) => new Element("li", { "data-key": key }, dot())));
}

function hide(isHidden) {
  document.hidden = isHidden;
  document.dispatchEvent(new Event("visibilitychange"));
}

test("the tab's title counts the answers of all conversations until its reader is back", () => {
  showUnread("3");
  watchAbsence(() => {});
  hide(false);
  showUnread("3", "4");
  countElsewhere(list);
  assert.equal(document.title, "Rivers – Parley"); // its reader sees the list
  hide(true);
  notifyOf("ready");
  showUnread("3", "4", "5");
  countElsewhere(list);
  countElsewhere(list);
  assert.equal(document.title, "(2) Rivers – Parley");
  showTitle("Ideas – Parley");
  assert.equal(document.title, "(2) Ideas – Parley");
  hide(false);
  assert.equal(document.title, "Ideas – Parley");
});

test("dots that a page in the background finds when it opens are not news", async () => {
  document.title = "Rivers – Parley";
  const { countElsewhere: count } = await import("../../../static/js/notify/notify.js?background");
  hide(true);
  showUnread("3", "4");
  count(list);
  assert.equal(document.title, "Rivers – Parley");
  showUnread("3", "4", "5");
  count(list);
  assert.equal(document.title, "(1) Rivers – Parley");
  hide(false);
});

test("a page that is covered keeps the title of what covers it", () => {
  document.title = "You are signed out";
  countElsewhere(list);
  assert.equal(document.title, "You are signed out");
});
