// What a page takes to show a megabyte of each of the units given, as it streams in:
// node markdown_stream.mjs UNIT... Prints the longest update and all of them, in ms, as
// JSON. The page's nodes do nothing here.
const MEGABYTE = 1024 * 1024;
const PIECE = 20_000; // characters, far more than come in one frame of a page
const PATIENCE = 20_000; // ms; the rest is left unread

const list = { add() {}, remove() {} };
const node = () => ({
  append() {},
  appendChild: (child) => child,
  replaceChildren() {},
  setAttribute() {},
  remove() {},
  classList: list,
  dataset: {},
});
globalThis.document = { createElement: node, createTextNode: node };
console.assert = () => {}; // a page shows it to nobody
const { MarkdownStream } = await import("../../static/js/markdown.js");

function measure(unit) {
  const text = unit.repeat(MEGABYTE / unit.length);
  const stream = new MarkdownStream(node());
  const started = performance.now();
  let longest = 0;
  let at = 0;
  while (at < text.length && performance.now() - started < PATIENCE) {
    at += PIECE;
    const begun = performance.now();
    stream.update(text.slice(0, at));
    longest = Math.max(longest, performance.now() - begun);
  }
  const outcome = at < text.length ? "left off" : "read";
  return { unit, longest, all: performance.now() - started, outcome };
}

console.log(JSON.stringify(process.argv.slice(2).map(measure)));
