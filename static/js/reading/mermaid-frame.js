// Runs in the sandboxed frame of diagrams: source in, SVG out. A classic script, as the
// frame's opaque origin may load no modules.

"use strict";

let number = 0;

addEventListener("message", async ({ source, data }) => {
  if (source !== parent) return;
  try {
    parent.postMessage({ svg: await draw(data) }, "*");
  } catch (error) {
    parent.postMessage({ error: String(error).slice(0, 300) }, "*");
  }
});

async function draw({ source, theme }) {
  number += 1;
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    theme,
    suppressErrorRendering: true,
    htmlLabels: false,
    flowchart: { htmlLabels: false },
    fontFamily: "system-ui, sans-serif",
  });
  const { svg } = await mermaid.render(`diagram-${number}`, source);
  return sized(svg);
}

/** The SVG with its size in pixels: as a picture it has no page to be 100 % of. */
function sized(text) {
  const svg = new DOMParser().parseFromString(text, "text/html").querySelector("svg");
  const [, , width, height] = svg.getAttribute("viewBox").split(/[\s,]+/).map(Number);
  svg.setAttribute("width", Math.ceil(width));
  svg.setAttribute("height", Math.ceil(height));
  return new XMLSerializer().serializeToString(svg);
}

if (globalThis.mermaid) parent.postMessage("ready", "*"); // else it did not load
