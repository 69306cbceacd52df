// A notification where only a service worker may show it, as on phones.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, openPage } from "./page.mjs";

const { body } = openPage();
document.hidden = true;
body.dataset.user = "1";
body.append(
  new Element("div", { id: "people", "data-notify-browser": "" }),
  new Element("button", { id: "sound", "data-ready": "An answer is ready" }),
  new Element("h1", { class: "bar-title" }, "Rivers"),
  new Element("link", { rel: "icon", "data-badge": "/new.svg" }),
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
const { notifyOf } = await import("../../../static/js/notify/notify.js");

test("the service worker shows it where the page may not", async () => {
  notifyOf("ready");
  await navigator.serviceWorker.ready;
  await null;
  const [[title, { body, tag }]] = shown;
  assert.deepEqual([title, body, tag], ["An answer is ready", "Rivers", "/chat/1/"]);
});
