// Typesets formulas with KaTeX, which is loaded when the first formula comes near the
// visible part of the page. Until then they stay as they are written.
//
// A formula is a hundred elements. Those that are far again are put back to their source,
// a few for each frame: a jump to a place that was typeset before would otherwise lay out
// all of its formulas in one task.
//
// KaTeX writes HTML with style attributes, which the page's Content-Security-Policy
// forbids. It is parsed under another attribute's name, and each style is then set by
// script, which the policy permits.

import { element, matching } from "../dom.js";
import { nextFrame } from "../frames.js";
import { GROWING } from "./complete.js";
import { Library } from "./library.js";

const BEGINNINGS = { "$$": 2, "\\(": 2, "\\[": 2, $: 1 };
const LONGEST = 5000; // characters of a formula
const MOST = 2000; // formulas of a page; more stay as they are written
const OPTIONS = { throwOnError: true, strict: "ignore", maxSize: 20, maxExpand: 300 };
const BUDGET = 3; // milliseconds of typesetting for each frame; its layout takes more
const MOST_IN_FRAME = 8; // formulas: those that were typeset before take no budget
const NEAR = "1000px"; // above and below the visible part
const UNSEEN = ".math[data-tex]:not(.is-typeset, [title])";
const BLOCK = ".prose > *"; // that the browser lays out only when it is near

const library = new Library(load, typeset);
const waiting = new Set();
const far = new Set(); // typeset formulas that are to be put back
const made = new WeakMap(); // what was typeset, by the formula's element
let isPuttingBack = false;
const used = new Set(); // formulas that are typeset, or wait for it
let isTypesetting = false;

// Browsers that do not hold the reader's place when something above it grows typeset all.
const near =
  CSS.supports("overflow-anchor: auto") &&
  new IntersectionObserver(onNear, { rootMargin: `${NEAR} 0px` });
globalThis.addEventListener("beforeprint", typesetUnseen);

/** Typesets the new formulas of `root`: each when it is near, or all at once. */
export function typesetFormulas(root, { isAll = !near } = {}) {
  for (const node of matching(root, ".math:not([data-tex])")) {
    if (node.closest(GROWING) && !("whole" in node.dataset)) continue;
    node.dataset.tex = node.textContent;
    if (node.textContent.length > LONGEST) continue;
    if (isAll) ask([node]);
    else {
      const block = node.closest(BLOCK);
      block?.classList.add("has-formulas");
      block?.addEventListener("contentvisibilityautostatechange", onSkipped);
      near.observe(node);
    }
  }
}

function onNear(entries) {
  const asked = [];
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) passBy(target);
    else if (!target.matches(".is-typeset, [title]")) asked.push(target);
  }
  ask(asked);
}

function passBy(node) {
  if (waiting.delete(node)) used.delete(node);
}

/** The browser begins, or ends, to leave out a block that is far. */
function onSkipped({ currentTarget: block, skipped }) {
  for (const node of block.querySelectorAll(".math.is-typeset")) {
    if (skipped) far.add(node);
    else far.delete(node);
  }
  if (far.size && !isPuttingBack) putBackLater();
}

function putBackLater() {
  isPuttingBack = true;
  nextFrame(() => {
    const until = performance.now() + BUDGET;
    for (const node of far) {
      far.delete(node);
      if (!isUsed(node)) putBack(node);
      if (performance.now() >= until) break;
    }
    isPuttingBack = false;
    if (far.size) putBackLater();
  });
}

function putBack(node) {
  node.textContent = node.dataset.tex;
  node.classList.remove("is-typeset");
  used.delete(node);
}

const isUsed = (node) =>
  document.getSelection()?.isCollapsed === false || node.contains(document.activeElement);

function ask(nodes) {
  if (used.size + nodes.length > MOST) forgetRemoved();
  const more = nodes.filter((node) => !waiting.has(node)).slice(0, MOST - used.size);
  for (const node of more) {
    waiting.add(node);
    used.add(node);
  }
  if (waiting.size) library.need();
}

/** Those of a live answer leave the page when the server's rendering replaces it. */
function forgetRemoved() {
  for (const node of used) {
    if (node.isConnected) continue;
    used.delete(node);
    waiting.delete(node);
  }
}

/** A few for each frame, because the browser then lays out what was added to it. */
function typeset(katex) {
  if (isTypesetting) return; // it takes what has been added, too
  isTypesetting = true;
  const until = performance.now() + BUDGET;
  let left = MOST_IN_FRAME;
  for (const node of taken()) {
    show(katex, node);
    left -= 1;
    if (left === 0 || performance.now() >= until) break;
  }
  nextFrame(() => {
    isTypesetting = false;
    if (waiting.size) typeset(katex);
  });
}

function* taken() {
  for (const node of waiting) {
    waiting.delete(node);
    yield node;
  }
}

/** Paper shows all formulas, if KaTeX is there. */
function typesetUnseen() {
  if (!globalThis.katex) return;
  ask([...document.querySelectorAll(UNSEEN)]);
  for (const node of taken()) show(globalThis.katex, node);
}

/** As a classic script: a browser may remember for good that a module did not load. */
async function load() {
  const folder = new URL("../../vendor/katex/", import.meta.url);
  const address = (name) => new URL(name, folder).href;
  const files = [
    element("link", { rel: "stylesheet", href: address("katex.min.css") }),
    element("script", { src: address("katex.min.js") }),
  ];
  try {
    await Promise.all(files.map(added));
  } catch (error) {
    for (const file of files) file.remove();
    throw error;
  }
  return globalThis.katex;
}

function added(file) {
  return new Promise((resolve, reject) => {
    file.onload = resolve;
    file.onerror = () => reject(new Error("not loaded"));
    document.head.append(file);
  });
}

function show(katex, node) {
  const source = node.dataset.tex;
  const opening = source.startsWith("$$") ? "$$" : source.startsWith("$") ? "$" : source.slice(0, 2);
  const length = BEGINNINGS[opening] ?? 0;
  const displayMode = opening === "$$" || opening === "\\[";
  const tex = source.slice(length, source.length - length).trim();
  try {
    if (!made.has(node)) {
      made.set(node, parse(katex.renderToString(tex, { ...OPTIONS, displayMode })));
    }
    node.replaceChildren(made.get(node));
    node.classList.add("is-typeset");
    node.classList.toggle("is-display", displayMode);
    if (displayMode) node.tabIndex = 0; // a wide one is scrolled with the arrow keys
  } catch {
    node.title = "TeX"; // it stays as it is written
  }
}

/** The element that KaTeX has written. It escapes quotation marks in texts and values,
 *  so that `style="` is always the beginning of an attribute. */
function parse(html) {
  const marked = html.replaceAll(' style="', ' data-style="');
  const parsed = new DOMParser().parseFromString(marked, "text/html");
  const element = document.adoptNode(parsed.body.firstElementChild);
  for (const styled of element.querySelectorAll("[data-style]")) {
    styled.style.cssText = styled.dataset.style;
    delete styled.dataset.style;
  }
  return element;
}
