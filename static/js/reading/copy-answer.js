// Copies an answer as plain text, with its formats, or the link to it.
//
// Reasoning and tool calls are left out: only what the model said is copied.

import { loadParts } from "../text-parts.js";
import { showCopied, writeRich, writeText } from "./clipboard.js";

const OURS =
  ".code-head, .table-tools, .diagram, .diagram-error, .note-back, button, .visually-hidden";
const INDENT = "\uE000"; // blanks at the start of a line would be lost
const KEPT = new Set(["href", "colspan", "rowspan", "start", "dir", "checked", "type"]);

export async function onCopyChoice(event) {
  const button = event.target.closest("[data-copy-as]");
  if (!button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const answer = button.closest(".turn").querySelector(".answer");
  if (button.dataset.copyAs !== "link") await loadParts(answer);
  showCopied(button, await copyAs(button, answer));
}

function copyAs(button, answer) {
  if (button.dataset.copyAs === "link") return writeText(button.href);
  if (button.dataset.copyAs === "plain") return writeText(plainOf(answer));
  return writeRich(richOf(answer), plainOf(answer));
}

/** The text of what was said, formulas as TeX. */
export function plainOf(answer) {
  const parts = richOf(answer);
  for (const item of [...parts.querySelectorAll("li")].reverse()) {
    const marker = markerOf(item);
    (item.querySelector(":scope > p:first-child") ?? item).prepend(marker);
  }
  for (const place of parts.querySelectorAll("sup")) place.textContent = `[${place.textContent}]`;
  document.body.append(parts);
  parts.className = "copied-text";
  const text = parts.innerText; // of an element in the page: with its line breaks
  parts.remove();
  return text.replaceAll(INDENT, "  ").trim();
}

/** What a browser draws beside an item of a list, which is no text of the page. */
function markerOf(item) {
  const list = item.parentElement;
  const depth = INDENT.repeat(countAbove(list, "li"));
  const box = item.querySelector(":scope > label > input, :scope > input, :scope > p > label > input");
  if (box) return `${depth}- [${box.checked ? "x" : " "}]`;
  if (list.matches("ul")) return `${depth}- `;
  return `${depth}${list.start + [...list.children].indexOf(item)}. `;
}

function countAbove(node, selector) {
  const above = node.parentElement?.closest(selector);
  return above ? 1 + countAbove(above, selector) : 0;
}

/** A copy of what was said, without this page's own buttons, classes and styles. */
export function richOf(answer) {
  const copy = document.createElement("div");
  for (const said of answer.querySelectorAll(".said")) {
    if (said.closest(".thought, .called, .summarised")) continue;
    copy.append(...said.cloneNode(true).childNodes);
  }
  for (const formula of copy.querySelectorAll("[data-tex]")) {
    formula.replaceWith(formula.dataset.tex);
  }
  for (const own of copy.querySelectorAll(OURS)) own.remove();
  for (const link of copy.querySelectorAll('a[href^="#"]')) link.replaceWith(...link.childNodes);
  for (const node of copy.querySelectorAll("*")) {
    for (const { name } of [...node.attributes]) {
      if (!KEPT.has(name)) node.removeAttribute(name);
    }
  }
  return copy;
}
