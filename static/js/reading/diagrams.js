// Draws mermaid diagrams, in a sandboxed frame that has no access to the page.
//
// The frame gets a diagram's text and returns an SVG file, which is shown as a picture:
// pictures run no scripts and load nothing. The source stays in the page, behind a button.

import { $, cloned, slot } from "../dom.js";
import { fresh } from "./complete.js";
import { Library } from "./library.js";

const MOST = 40; // diagrams of a page
const LONGEST = 10_000; // characters of a diagram's source
const LARGEST = 2_000_000; // characters of a drawn diagram
const PATIENCE = 15_000; // milliseconds for one diagram
const LOADED_IN = 120_000; // milliseconds for the three megabytes of mermaid
const SILENT = 3000; // milliseconds after which a loaded frame has no mermaid
const KEPT = 60; // drawn diagrams that are remembered

const HALVES = /\p{Surrogate}/gu; // of a label that mermaid has cut within an emoji

const system = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map(); // theme and source -> URL of the picture
const waiting = []; // of {source, theme, show, fail}
const asked = new Set(); // blocks whose diagram was asked for
const library = new Library(load, next);
let frame = null;
let onReady = null;
let current = null;
let timer = 0;

export function drawDiagrams(root) {
  for (const block of fresh(root, ".code", "drawn")) {
    if (block.querySelector(".code-head span").textContent !== "mermaid") continue;
    const source = block.querySelector("code").textContent.trim();
    if (source.length > LONGEST || !isRoom()) continue;
    asked.add(block);
    draw(block, source);
  }
}

/** Those of a live answer leave the page when the server's rendering replaces it. */
function isRoom() {
  for (const block of asked) if (!block.isConnected) asked.delete(block);
  return asked.size < MOST;
}

system.addEventListener("change", () => {
  for (const figure of document.querySelectorAll(".diagram")) {
    const block = figure.nextElementSibling;
    figure.remove();
    block.hidden = false; // drawing it again may fail
    draw(block, block.querySelector("code").textContent.trim());
  }
});

function isDark() {
  if (document.body.matches(".printed")) return false; // paper is light
  const { classList } = document.documentElement;
  return classList.contains("theme-dark") || (system.matches && !classList.contains("theme-light"));
}

function draw(block, source) {
  const theme = isDark() ? "dark" : "default";
  const key = `${theme}\n${source}`;
  const show = (url) => {
    if (drawn.size >= KEPT) drawn.delete(drawn.keys().next().value);
    drawn.set(key, url);
    place(block, source, url);
  };
  if (drawn.has(key)) return place(block, source, drawn.get(key));
  waiting.push({ source, theme, show, fail: () => refuse(block) });
  library.need();
}

function place(block, source, url) {
  if (!block.isConnected) return;
  const figure = cloned("diagram");
  const picture = figure.querySelector("img");
  picture.src = url;
  picture.alt += source.split("\n", 1)[0].slice(0, 80);
  figure.querySelector('[data-diagram="source"]').addEventListener("click", ({ currentTarget }) => {
    block.hidden = !block.hidden;
    currentTarget.setAttribute("aria-expanded", !block.hidden);
  });
  block.before(figure);
  block.hidden = true;
}

function refuse(block) {
  if (block.querySelector(".diagram-error")) return;
  block.querySelector("pre").before(cloned("diagram-error"));
}

function next() {
  if (current || !waiting.length) return;
  current = waiting.shift();
  const { source, theme } = current;
  frame.contentWindow.postMessage({ source, theme }, "*"); // its origin is opaque
  timer = setTimeout(giveUp, PATIENCE);
}

/** Resolves when the frame can draw. */
function load() {
  frame?.remove(); // of an attempt that failed
  frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.src = $("#reading").dataset.diagrams;
  frame.title = $("#reading").dataset.diagramsTitle;
  frame.className = "diagram-frame";
  frame.tabIndex = -1;
  frame.ariaHidden = "true";
  return new Promise((resolve, reject) => {
    const refuse = () => reject(new Error("not loaded"));
    timer = setTimeout(refuse, LOADED_IN);
    frame.addEventListener("load", () => {
      if (!onReady) return;
      clearTimeout(timer);
      timer = setTimeout(refuse, SILENT);
    });
    onReady = () => {
      clearTimeout(timer);
      onReady = null;
      resolve(frame);
    };
    document.body.append(frame);
  });
}

addEventListener("message", ({ source, data }) => {
  if (!frame || source !== frame.contentWindow || data === null) return;
  if (data === "ready") return onReady?.();
  if (!current) return;
  const { show, fail } = current;
  end();
  const { svg } = data;
  try {
    if (typeof svg !== "string" || !svg || svg.length > LARGEST) fail();
    else show(`data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg.replace(HALVES, "\uFFFD"))}`);
  } finally {
    next(); // one that cannot be shown stops no other
  }
});

function end() {
  clearTimeout(timer);
  current = null;
}

/** The frame does not answer: shows the source, and draws the others in a new frame. */
function giveUp() {
  current.fail();
  end();
  frame.remove();
  library.forget();
  if (waiting.length) library.need();
}
