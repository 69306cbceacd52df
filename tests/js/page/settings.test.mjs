// Settings that need the browser's consent, and shortcuts that are off.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, openPage } from "./page.mjs";

const { body } = openPage();
globalThis.addEventListener = () => {};
const field = Object.assign(new Element("input", { name: "notify_browser" }), { checked: true });
const place = new Element("div", {}, field);
body.append(place);
globalThis.Notification = undefined;
await import("../../../static/js/people/settings.js");
const { listenForShortcuts } = await import("../../../static/js/people/shortcuts.js");

async function tick(permission) {
  field.checked = true;
  globalThis.Notification = permission && { permission, requestPermission: async () => permission };
  field.dispatchEvent(new Event("change"));
  await new Promise(setImmediate);
}

test("a stored choice without notifications says so when the page opens", () => {
  assert.match(place.textContent, /needs https/);
  assert.equal(field.checked, true); // another browser may have them
});

test("notifications that the browser blocks are not ticked, and the page says why", async () => {
  await tick("denied");
  assert.deepEqual([field.checked, place.querySelectorAll(".notice").length], [false, 1]);
  assert.match(place.textContent, /Allow them/);
  await tick(undefined);
  assert.deepEqual([field.checked, place.querySelectorAll(".notice").length], [false, 1]);
  await tick("granted");
  assert.deepEqual([field.checked, place.textContent], [true, ""]);
});

test("no key is taken from the browser where shortcuts are off", () => {
  const taken = (shortcuts) => {
    const page = new EventTarget();
    document.addEventListener = page.addEventListener.bind(page);
    listenForShortcuts({ shortcuts: JSON.stringify(shortcuts) }, { help() {} });
    delete document.addEventListener;
    const event = Object.assign(new Event("keydown", { cancelable: true }), { key: "/", ctrlKey: true });
    page.dispatchEvent(event);
    return event.defaultPrevented;
  };
  assert.equal(taken({ help: "?" }), true);
  assert.equal(taken({}), false);
});
