// Up in the empty message box: edit the last message, or write it again.

import { replaceText } from "./completions.js";

const OTHERS = ".is-note, .is-steering, .is-of-another";
const QUEUED = "#queue .queued[data-turn]:has(textarea) .queued-edit";

export function editLastOnUp(box) {
  box.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowUp" || box.value || event.isComposing) return;
    if (event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
    if (editQueued() || editLast(box)) event.preventDefault();
  });
}

/** Opens the message that waits for its turn, the last of several. */
function editQueued() {
  const last = [...document.querySelectorAll(QUEUED)].at(-1);
  if (!last) return false;
  last.open = true;
  last.querySelector("textarea").focus();
  return true;
}

/** The reader's own. Of compared answers only the question above them is visible. */
function editLast(box) {
  const all = document.querySelectorAll(`#transcript .asked:not(${OTHERS})`);
  const last = [...all].filter((message) => message.checkVisibility()).at(-1);
  if (!last) return false;
  const open = last.querySelector(".edit-message textarea");
  const edit = last.querySelector(".turn-edit");
  if (open) open.focus();
  else if (edit?.checkVisibility()) edit.click();
  else replaceText(box, 0, 0, last.querySelector(".asked-text")?.textContent ?? "");
  return true;
}
