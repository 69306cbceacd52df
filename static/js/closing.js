// What opens over or in the chat page closes by Escape, the innermost first.

import { $ } from "./dom.js";

const MENUS = [".row-menu", ".tools-menu", ".user-menu", ".answer-menu", ".send-menu", ".turn-menu"]
  .map((menu) => `${menu}[open]`)
  .join();
/** Editors and the pane of an artifact; a selector each, the first one closes first. */
const OTHERS = [
  ".queued-edit[open]",
  ".question .edit[open]",
  ".summary-edit[open]",
  "form.edit-message",
  ".artifact-pane:not([hidden])",
];
const OPEN = [MENUS, ...OTHERS];

/** Closes the menus that do not contain `target`. */
export function closeMenus(target) {
  for (const menu of document.querySelectorAll(MENUS)) {
    if (!menu.contains(target)) menu.open = false;
  }
}

/** Closes what is open around the focus, else what is open elsewhere and has nothing typed
 *  in it. Whether there was such; dialogs and popovers are closed by the browser. */
export function closeInnermost() {
  if ($("dialog[open], :popover-open")) return true;
  const around = document.activeElement.closest(OPEN.join());
  const open = around ?? OPEN.flatMap(all).find(isUnchanged);
  if (open) close(open);
  return Boolean(open);
}

const all = (selector) => [...document.querySelectorAll(selector)];

/** A form that goes would take the text with it, perhaps out of sight. */
function isUnchanged(open) {
  const areas = [...open.querySelectorAll("textarea")];
  return areas.every(({ value, defaultValue }) => value === defaultValue);
}

/** What has a button for that knows what else is to be done. */
function close(open) {
  const button = $("[data-cancel], [data-close-artifact]", open);
  if (button) return button.click();
  const hadFocus = open.contains(document.activeElement);
  open.open = false;
  if (hadFocus || open.matches(".queued-edit")) $("summary", open).focus();
}
