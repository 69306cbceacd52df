// Quotes what the reader has selected in the transcript: a button below the selection, which
// a shortcut presses, writes it into the message box.

import { $, announce } from "../dom.js";
import { replaceText } from "../people/completions.js";
import { gettext } from "../texts.js";

const GAP = 8; // pixels between the selection and the button
const MAX = 20_000; // characters

export function quoteSelections() {
  const button = $("#quote");
  if (!button || !mayWrite()) return;
  // Pressing the button would end the selection.
  button.addEventListener("pointerdown", (event) => event.preventDefault());
  button.addEventListener("click", quoteSelection);
  document.addEventListener("selectionchange", () => show(button));
}

const mayWrite = () => $("#text")?.checkVisibility();

/**
 * Writes the selection into the message box; false if nothing can be quoted.
 *
 * Reads the selection itself: the browser reports a change of it (`selectionchange`) some
 * time later, so the button may still be hidden when the shortcut's key is pressed.
 */
export function quoteSelection() {
  const selected = mayWrite() && selectedText();
  if (!selected) return false;
  const box = $("#text");
  const lines = selected.split("\n").map((line) => `> ${line}`.trimEnd());
  const before = box.value.trim() ? `${box.value.trimEnd()}\n\n` : "";
  getSelection().removeAllRanges();
  $("#quote").hidden = true;
  replaceText(box, 0, box.value.length, `${before}${lines.join("\n")}\n\n`);
  box.focus();
  announce(gettext("The quotation is in the message box."));
  return true;
}

/** "" unless the selection lies within what was asked or answered. */
function selectedText() {
  const selection = getSelection();
  if (!selection.rangeCount || selection.isCollapsed) return "";
  const { commonAncestorContainer: root } = selection.getRangeAt(0);
  const element = root.nodeType === Node.ELEMENT_NODE ? root : root.parentElement;
  if (!element.closest("#transcript .said, #transcript .asked-text, #transcript .answer")) {
    return "";
  }
  const selected = selection.toString().replaceAll("\r", "").trim().slice(0, MAX);
  return selected.replace(/[\uD800-\uDBFF]$/, ""); // no half of an emoji
}

function show(button) {
  button.hidden = !selectedText();
  if (button.hidden) return;
  const place = getSelection().getRangeAt(0).getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = button;
  const most = document.documentElement.clientWidth - width - GAP;
  const left = Math.max(GAP, Math.min(place.left, most));
  const bottom = innerHeight - $("#composer").offsetHeight - height - GAP;
  const top = Math.max(GAP, Math.min(place.bottom + GAP, bottom));
  button.style.left = `${left}px`;
  button.style.top = `${top}px`;
}
