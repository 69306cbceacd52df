// Opens an artifact beside the chat.
//
// What the model wrote runs only in the frame of that page, which is sandboxed.

import { $, fetched, openInstead } from "../dom.js";

let newest = 0; // number of the last click: an older one may be answered later

export function openArtifactsBeside() {
  const pane = $("#artifact");
  let opener = null;
  const close = () => {
    newest += 1;
    pane.hidden = true;
    document.body.classList.remove("has-artifact");
    pane.querySelector("[data-artifact-content]").replaceChildren();
    opener?.focus({ preventScroll: true });
  };
  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    if (event.target.closest("[data-close-artifact]")) return close();
    const link = event.target.closest("a[data-artifact]");
    if (!link) return;
    event.preventDefault();
    if (!pane.contains(link)) opener = link;
    open(pane, link.href);
  });
  pane.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    close();
  });
}

async function open(pane, url) {
  const number = (newest += 1);
  try {
    const shown = await fetched(url, "[data-artifact-page]");
    if (number !== newest) return;
    pane.querySelector("[data-artifact-content]").replaceChildren(shown);
    document.body.classList.add("has-artifact");
    pane.hidden = false;
    pane.focus({ preventScroll: true });
  } catch (error) {
    if (number === newest) openInstead(url, error);
  }
}
