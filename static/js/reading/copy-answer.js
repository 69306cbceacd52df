// Copies an answer as plain text, with its formats, or the link to it.
//
// Reasoning and tool calls are left out: only what the model said is copied.

import { confirmCopy, writeRich, writeText } from "./clipboard.js";

const OURS = ".code-head, .table-tools, .diagram, button, .visually-hidden";
const KEPT = new Set(["href", "colspan", "rowspan", "start", "dir", "checked", "type"]);

export async function onCopyChoice(event) {
  const button = event.target.closest("[data-copy-as]");
  if (!button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const answer = button.closest(".turn").querySelector(".answer");
  if (button.dataset.copyAs === "link") await writeText(button.href);
  else if (button.dataset.copyAs === "plain") await writeText(plainOf(answer));
  else await writeRich(richOf(answer), plainOf(answer));
  confirmCopy(button);
}

/** The text of what was said, formulas as TeX. */
export function plainOf(answer) {
  const parts = richOf(answer);
  document.body.append(parts);
  parts.className = "copied-text";
  const text = parts.innerText; // of an element in the page: with its line breaks
  parts.remove();
  return text.trim();
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
  for (const node of copy.querySelectorAll("*")) {
    for (const { name } of [...node.attributes]) {
      if (!KEPT.has(name)) node.removeAttribute(name);
    }
  }
  return copy;
}
