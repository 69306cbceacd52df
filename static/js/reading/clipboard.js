// The clipboard, also on pages without https, where browsers hide its API, and where the
// browser denies it.

import { $, announce } from "../dom.js";
import { gettext } from "../texts.js";

const SHOWN = 1500; // milliseconds that a button says what came of it
const SHOWN_FAILURE = 5000;

/** Copies `text`. Returns whether the browser did. */
export async function writeText(text) {
  if (await isDone(() => navigator.clipboard.writeText(text))) return true;
  const area = Object.assign(document.createElement("textarea"), { value: text });
  area.className = "visually-hidden";
  const focused = document.activeElement;
  activeBox().append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  focused?.focus({ preventScroll: true });
  return isCopied;
}

/** Where text can be selected: while a modal dialog is open, only in it. */
const activeBox = () => [...document.querySelectorAll("dialog:modal")].at(-1) ?? document.body;

/** Copies `node` with its formats, and `text` for programs that take no formats. */
export async function writeRich(node, text) {
  const html = new XMLSerializer().serializeToString(node);
  const parts = { "text/html": html, "text/plain": text };
  const blobs = Object.entries(parts).map(([type, data]) => [
    type,
    new Blob([data], { type }),
  ]);
  const items = () => [new ClipboardItem(Object.fromEntries(blobs))];
  if (await isDone(() => navigator.clipboard.write(items()))) return true;
  return copySelected(node);
}

/** Without https there is no clipboard, and elsewhere it may refuse: both throw. */
async function isDone(act) {
  try {
    await act();
    return true;
  } catch {
    return false;
  }
}

function copySelected(node) {
  node.className = "visually-hidden";
  activeBox().append(node);
  const selection = getSelection();
  selection.selectAllChildren(node);
  const isCopied = document.execCommand("copy");
  selection.removeAllRanges();
  node.remove();
  return isCopied;
}

export function showCopied(button, isCopied) {
  const words = isCopied ? gettext("Copied") : gettext("Not copied");
  if ($("#announcer")) announce(isCopied ? words : DENIED());
  const shown = isCopied ? SHOWN : SHOWN_FAILURE;
  if (!isCopied) explain(button, shown);
  const label = button.querySelector("[data-label]");
  const use = label ? null : button.querySelector("use");
  if (use) return swapIcon(use, isCopied ? "#icon-check" : "#icon-alert", shown);
  swapWords(label ?? button, words, shown);
}

const DENIED = () => gettext("Not copied: your browser does not allow it. Select the text and copy it.");

function explain(button, shown) {
  const { title } = button;
  if (title === DENIED()) return;
  button.title = DENIED();
  setTimeout(() => (button.title = title), shown);
}

function swapIcon(use, address, shown) {
  use.dataset.usual ??= use.getAttribute("href");
  use.setAttribute("href", address);
  setTimeout(() => use.setAttribute("href", use.dataset.usual), shown);
}

function swapWords(label, words, shown) {
  label.dataset.usual ??= label.textContent;
  label.textContent = words;
  setTimeout(() => (label.textContent = label.dataset.usual), shown);
}
