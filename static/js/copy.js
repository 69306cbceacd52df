// Copy buttons: the text of a code block, the source of an answer, a call's arguments.

import { pretty } from "./readable.js";
import { gettext } from "./texts.js";

export function copyOnClick() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await toClipboard(textFor(button));
    confirm(button);
  });
}

function textFor(button) {
  if (button.dataset.copy === "answer") return button.dataset.text;
  if (button.dataset.copy === "part") return partOf(button.closest(".called-part"));
  return button.closest(".code").querySelector("code").textContent;
}

/** The text of a tree is JSON on one line; a table has its tree below it. */
function partOf(part) {
  const shown = part.querySelectorAll(".json, .pieces > pre");
  return [...shown].map(({ textContent }) => pretty(textContent)).join("\n\n");
}

async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Browsers allow the clipboard API on https pages only; this works on http too.
  const area = Object.assign(document.createElement("textarea"), { value: text });
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function confirm(button) {
  const use = button.querySelector("use");
  if (use) use.setAttribute("href", "#icon-check");
  else button.textContent = gettext("Copied");
  setTimeout(() => {
    if (use) use.setAttribute("href", "#icon-copy");
    else button.textContent = gettext("Copy");
  }, 1500);
}
