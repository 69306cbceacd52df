// Copy buttons: the text of a code block, the source of an answer, a call's arguments.

import { pretty } from "./readable.js";
import { showCopied, writeText } from "./reading/clipboard.js";

export function copyOnClick() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    showCopied(button, await writeText(textFor(button)));
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
