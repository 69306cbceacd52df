// The settings pages: record keys by pressing them, ask for notifications.

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

// The browser lets a page ask only when something is clicked.
document.querySelector("[name=notify_browser]")?.addEventListener("change", (event) => {
  if (event.target.checked) globalThis.Notification?.requestPermission();
});
