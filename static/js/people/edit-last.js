// Up in the empty message box: edit the last message, or write it again.

import { replaceText } from "./completions.js";

const EDIT = '[data-action="edit"], .turn-edit';

export function editLastOnUp(box) {
  box.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowUp" || box.value || event.isComposing) return;
    if (event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
    const asked = [...document.querySelectorAll("#transcript .asked:not(.is-note)")];
    const last = asked.at(-1);
    if (!last) return;
    event.preventDefault();
    const edit = (last.closest(".turn") ?? last).querySelector(EDIT);
    if (edit) edit.click();
    else replaceText(box, 0, 0, last.querySelector(".asked-text")?.textContent ?? "");
  });
}
