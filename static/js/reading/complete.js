// Which parts of a streaming answer are complete.

import { matching } from "../dom.js";

/** A part of an answer that may still grow. */
export const GROWING =
  '.turn:is([data-status="queued"], [data-status="in_progress"], [data-status="waiting"])';

/** Whether no more text will be added to this block: its turn is over, or more follows. */
export function isComplete(block) {
  if (!block.closest(GROWING)) return true;
  for (let node = block; node && !node.matches(".answer"); node = node.parentElement) {
    if (node.nextElementSibling) return true;
  }
  return false;
}

/** Elements that match and have not been seen under this name; marks them as seen. */
export function* fresh(root, selector, name) {
  for (const found of matching(root, `${selector}:not([data-${name}])`)) {
    if (!isComplete(found)) continue;
    found.setAttribute(`data-${name}`, "");
    yield found;
  }
}
