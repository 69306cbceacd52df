// Copy buttons: a code block's text, an answer as it was written, a call's arguments.

import { pretty } from "./readable.js";

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

/** A tree's text is JSON, in one line; a table has its tree below it. */
function partOf(part) {
  const shown = part.querySelectorAll(".json, .pieces > pre");
  return [...shown].map(({ textContent }) => pretty(textContent)).join("\n\n");
}

async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Browsers give the clipboard to https pages only; this older way works on a LAN.
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
  else button.textContent = "Copied";
  setTimeout(() => {
    if (use) use.setAttribute("href", "#icon-copy");
    else button.textContent = "Copy";
  }, 1500);
}
