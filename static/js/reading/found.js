// Marks the words that a search has found: in the message that it leads to, or, where it
// found the title, in all that the page shows. The browser paints them: the page's elements
// stay as they are.

import { $ } from "../dom.js";

const NAME = "found"; // as reading.css has it
const TEXTS = ".said, .asked-text";
const MOST = 500; // words
const WORD = /[\p{L}\p{N}][\p{L}\p{N}\p{M}]*/gu;
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

export function markFound() {
  const query = new URLSearchParams(location.search);
  const turn = document.getElementById(`turn-${query.get("at")}`);
  const words = wordsOf(query.get("q") ?? "");
  if (!words.length || !globalThis.Highlight) return;
  const ranges = rangesOf(turn ?? $("#transcript"), words);
  CSS.highlights.set(NAME, new Highlight(...ranges));
  const first = turn && ranges[0]?.startContainer.parentElement;
  first?.scrollIntoView({ block: "nearest", behavior: "instant" });
}

export const wordsOf = (text) => [...new Set(text.match(WORD)?.map(folded) ?? [])];

/** Without case and accents, as the server compares. */
function folded(word) {
  const parts = word.normalize("NFD").replace(/[\u0300-\u036f]/g, "");
  return parts.normalize("NFC").toLocaleLowerCase();
}

/** Where `text` has one of `words`, `[start, end]` each: words that begin with it, and in
 *  scripts without spaces the characters themselves. */
export function placesOf(text, words) {
  const places = [];
  for (const { index, 0: word } of text.matchAll(WORD)) {
    const known = folded(word);
    if (words.some((sought) => known.startsWith(sought) && !UNSPACED.test(sought))) {
      places.push([index, index + word.length]);
      continue;
    }
    const inside = words.find((sought) => UNSPACED.test(sought) && known.includes(sought));
    if (!inside) continue;
    const start = index + known.indexOf(inside);
    places.push([start, start + inside.length]);
  }
  return places;
}

function rangesOf(root, words) {
  const ranges = [];
  for (const text of root.querySelectorAll(TEXTS)) {
    const nodes = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
    for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
      for (const [start, end] of placesOf(node.data, words)) {
        if (ranges.length === MOST) return ranges;
        const range = new Range();
        range.setStart(node, start);
        range.setEnd(node, end);
        ranges.push(range);
      }
    }
  }
  return ranges;
}
