// Marks the words that a search has found: in the message that it leads to, or, where it
// found the title, in all that the page shows. The browser paints them: the page's elements
// stay as they are.

import { $ } from "../dom.js";

const NAME = "found"; // as reading.css has it
const TEXTS = ".said, .asked-text";
const MOST = 500; // words

export function markFound() {
  const query = new URLSearchParams(location.search);
  const turn = document.getElementById(`turn-${query.get("at")}`);
  const words = (query.get("q") ?? "").match(/[\p{L}\p{N}]+/gu);
  if (!words || !globalThis.Highlight) return;
  const ranges = rangesOf(turn ?? $("#transcript"), new RegExp(words.join("|"), "giu"));
  CSS.highlights.set(NAME, new Highlight(...ranges));
  const first = turn && ranges[0]?.startContainer.parentElement;
  first?.scrollIntoView({ block: "nearest", behavior: "instant" });
}

function rangesOf(root, pattern) {
  const ranges = [];
  for (const text of root.querySelectorAll(TEXTS)) {
    const nodes = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
    for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
      for (const { index, 0: word } of node.data.matchAll(pattern)) {
        if (ranges.length === MOST) return ranges;
        const range = new Range();
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        ranges.push(range);
      }
    }
  }
  return ranges;
}
