// How many diagrams and formulas a page shows: those that have left it do not count.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, addTemplate, openPage } from "./page.mjs";

const { body } = openPage();
let onMessage;
globalThis.addEventListener = (type, act) => type === "message" && (onMessage = act);
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
globalThis.CSS = { supports: () => false };
globalThis.requestAnimationFrame = (act) => act();
const picture = Object.assign(new Element("img"), { alt: "" });
picture.cloneNode = () => Object.assign(new Element("img"), { alt: "" });
const source = new Element("button", { "data-diagram": "source" });
addTemplate("diagram", new Element("figure", { class: "diagram" }, picture, source));
body.append(new Element("div", { id: "reading", "data-diagrams": "/frames/mermaid/" }));
const place = new Element("main");
body.append(place);
const { drawDiagrams } = await import("../../../static/js/reading/diagrams.js");
const { typesetFormulas } = await import("../../../static/js/reading/formulas.js");

/** Answers for each diagram, as the frame does. */
const drawn = { svg: "<svg/>" };
const answer = () => onMessage({ source: contentWindow, data: drawn });
const contentWindow = { postMessage: () => queueMicrotask(answer) };

function diagram(number) {
  const head = new Element("div", { class: "code-head" }, new Element("span", {}, "mermaid"));
  const code = new Element("code", {}, `graph TD; a-->b${number}`);
  return new Element("div", { class: "code" }, head, new Element("pre", {}, code));
}

test("a diagram is drawn after many that the server's rendering has replaced", async () => {
  for (let number = 0; number < 50; number += 1) {
    place.replaceChildren(diagram(number));
    drawDiagrams(place);
    const frame = body.querySelector("iframe");
    frame.contentWindow ??= contentWindow;
    onMessage({ source: contentWindow, data: "ready" });
    await new Promise(setImmediate);
    assert.ok(place.querySelector(".diagram"), `diagram ${number}`);
  }
});

test("a diagram with half of an emoji is shown", async (t) => {
  t.after(() => (drawn.svg = "<svg/>"));
  drawn.svg = "<svg>\ud83d</svg>";
  place.replaceChildren(diagram("half"));
  drawDiagrams(place);
  await new Promise(setImmediate);
  assert.match(decodeURIComponent(place.querySelector("img").src), /<svg>\ufffd/);
});

test("a page has forty diagrams at most", async () => {
  place.replaceChildren(...Array.from({ length: 50 }, (_, number) => diagram(number)));
  drawDiagrams(place);
  await new Promise(setImmediate);
  assert.equal(place.querySelectorAll(".diagram").length, 40);
});

test("formulas are typeset after many that the server's rendering has replaced", async () => {
  globalThis.katex = { renderToString: (tex) => tex };
  globalThis.DOMParser = class {
    parseFromString = (html) => ({ body: new Element("body", {}, new Element("i", {}, html)) });
  };
  const formulas = (count) =>
    Array.from({ length: count }, () => new Element("span", { class: "math" }, "$x$"));
  for (const count of [1500, 1500]) {
    place.replaceChildren(...formulas(count));
    typesetFormulas(place);
    for (const file of document.head.children) file.onload?.();
    await new Promise(setImmediate);
    assert.equal(place.querySelectorAll(".is-typeset").length, count);
  }
});
