// Improves what a reader sees of messages.
//
// Everything is found in the page after it was rendered, by the server or while an answer
// streams; so a page without JavaScript, or with a part that fails, keeps the plain text.

import { $ } from "../dom.js";
import { inSlices } from "../slices.js";
import { watchParts } from "../text-parts.js";
import { openArtifactsBeside } from "./artifacts.js";
import { addCodeTools, onCodeTool } from "./code-tools.js";
import { onCopyChoice } from "./copy-answer.js";
import { drawDiagrams } from "./diagrams.js";
import { dictate } from "./dictation.js";
import { previewFiles } from "./file-preview.js";
import { typesetFormulas } from "./formulas.js";
import { openPictures } from "./lightbox.js";
import { quoteSelections } from "./quote.js";
import { rateInPlace } from "./rating.js";
import { readAloudOnClick, showSpeechButtons } from "./speech.js";
import { addTableTools, onTableTool } from "./tables.js";

const PAUSE = 80; // milliseconds between two looks at a page that changes
const BLOCK = ".prose > *"; // or a part of a long text

export function startReading() {
  document.addEventListener("click", onCodeTool);
  document.addEventListener("click", onTableTool);
  document.addEventListener("click", onCopyChoice);
  readAloudOnClick();
  openPictures();
  previewFiles();
  openArtifactsBeside();
  quoteSelections();
  rateInPlace();
  dictate();
  const place = $("#transcript");
  const changed = new Set([...place.children].reverse()); // the last is seen first
  let timer = 0;
  const look = () => {
    timer = 0;
    const roots = [...changed];
    changed.clear();
    inSlices(roots, improve);
  };
  const note = (records) => {
    for (const root of records.flatMap(rootsOf)) changed.add(root);
    timer ||= setTimeout(look, PAUSE);
  };
  new MutationObserver(note).observe(place, { childList: true, subtree: true });
  whenIdle(look);
}

/** What a change may have completed: the block it is in, else what is before and in it. */
function rootsOf({ target, addedNodes, previousSibling }) {
  const block = target.closest(BLOCK);
  const found = block ? [block] : [...addedNodes, previousSibling];
  return found.filter((node) => node?.nodeType === Node.ELEMENT_NODE);
}

/** After the page was shown, which matters more. */
function whenIdle(act) {
  if (globalThis.requestIdleCallback) requestIdleCallback(act, { timeout: 500 });
  else setTimeout(act);
}

/** Improves what is complete in `root` and not improved yet. */
export function improve(root) {
  addCodeTools(root);
  addTableTools(root);
  typesetFormulas(root);
  drawDiagrams(root);
  showSpeechButtons(root);
  watchParts(root);
}
