// The settings pages: record keys by pressing them, ask for notifications.

import { notice } from "../dom.js";
import { gettext } from "../texts.js";
import { nameOf } from "./shortcuts.js";

const MODIFIERS = ["Control", "Shift", "Alt", "Meta", "AltGraph"];
const FREE = ["Tab", "Enter", "Escape"]; // move between fields, save, leave

for (const field of document.querySelectorAll("[data-records-key]")) {
  field.addEventListener("keydown", (event) => record(field, event));
}

function record(field, event) {
  if (FREE.includes(event.key) || MODIFIERS.includes(event.key)) return;
  if (event.isComposing || event.key === "Unidentified") return; // is typed instead
  event.preventDefault();
  const isErased = event.key === "Backspace" || event.key === "Delete";
  field.value = isErased ? "" : nameOf(event);
}

const notified = document.querySelector("[name=notify_browser]");
if (notified?.checked) sayWhyNot(notified);
// The browser lets a page ask only when something is clicked.
notified?.addEventListener("change", async () => {
  if (notified.checked) await globalThis.Notification?.requestPermission();
  if (notified.checked && sayWhyNot(notified)) notified.checked = false;
});

/** Says beside the field why this browser shows no notification. Whether there is a reason. */
function sayWhyNot(field) {
  const place = field.parentElement;
  place.querySelector(".notice")?.remove();
  const why = reason();
  if (why) place.append(notice(why, ""));
  return why !== "";
}

function reason() {
  const { permission } = globalThis.Notification ?? {}; // absent where a site has no https
  if (!permission) return gettext("This browser shows no notifications of this site: it has none, or needs https for them.");
  if (permission === "granted") return "";
  return gettext("This browser does not show notifications of this site. Allow them in its settings first.");
}
