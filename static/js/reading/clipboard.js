// The clipboard, also on pages without https, where browsers hide its API.

import { announce, $ } from "../dom.js";

export async function writeText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = Object.assign(document.createElement("textarea"), { value: text });
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Copies `node` with its formats, and `text` for programs that take no formats. */
export async function writeRich(node, text) {
  if (navigator.clipboard && globalThis.ClipboardItem) {
    const html = new XMLSerializer().serializeToString(node);
    const parts = { "text/html": html, "text/plain": text };
    const blobs = Object.entries(parts).map(([type, data]) => [
      type,
      new Blob([data], { type }),
    ]);
    return navigator.clipboard.write([new ClipboardItem(Object.fromEntries(blobs))]);
  }
  copySelected(node);
}

function copySelected(node) {
  node.className = "visually-hidden";
  document.body.append(node);
  const selection = getSelection();
  selection.selectAllChildren(node);
  document.execCommand("copy");
  selection.removeAllRanges();
  node.remove();
}

/** Says that something was copied, on the button and to screen readers. */
export function confirmCopy(button) {
  const words = $("#reading").dataset.copied;
  announce(words);
  const label = button.querySelector("[data-label]") ?? button;
  const before = label.textContent;
  if (before === words) return;
  label.textContent = words;
  setTimeout(() => (label.textContent = before), 1500);
}
