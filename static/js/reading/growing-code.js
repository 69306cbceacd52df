// Blocks of code of streamed Markdown.

import { gettext } from "../texts.js";
import { Highlighter } from "./highlight.js";

const LINES = 100; // that the browser lays out by themselves
const LINE_PIECE = /[^\n]*\n|[^\n]+/g;

const make = (tag) => document.createElement(tag);

/** Adds an empty block to `parent`; it grows by `add(text)`. */
export function codeBlock(parent, language) {
  const box = parent.appendChild(make("div"));
  box.className = "code";
  const head = box.appendChild(make("div"));
  head.className = "code-head";
  const label = head.appendChild(make("span"));
  label.textContent = language;
  head.append(copyButton());
  const pre = box.appendChild(make("pre"));
  pre.tabIndex = 0;
  pre.dir = "ltr";
  return new GrowingCode(pre.appendChild(make("code")), language);
}

/** Highlights each line when it is whole; the one that grows is plain. So many lines are
 *  an element, which the browser lays out by itself. */
class GrowingCode {
  #code;
  #part = null;
  #lines = 0; // of the part
  #highlighter = null;
  #line = null; // the text node of the line that grows

  constructor(code, language) {
    this.#code = code;
    const highlighter = new Highlighter(language);
    this.#highlighter = highlighter.isKnown ? highlighter : null;
  }

  add(text) {
    for (const piece of text.match(LINE_PIECE) ?? []) {
      if (!this.#part || this.#lines === LINES) this.#beginPart();
      this.#grow(piece);
      if (piece.endsWith("\n")) this.#end();
    }
  }

  end() {}

  #beginPart() {
    this.#part = this.#code.appendChild(make("span"));
    this.#part.className = "code-part";
    this.#lines = 0;
  }

  #grow(text) {
    if (!this.#highlighter) return appendPlain(this.#part, text);
    if (this.#line) return this.#line.appendData(text);
    this.#line = document.createTextNode(text);
    this.#part.append(this.#line);
  }

  #end() {
    this.#lines += 1;
    const line = this.#line;
    this.#line = null;
    if (!line) return;
    const tokens = this.#highlighter.tokens(line.data);
    if (tokens.some(([kind]) => kind)) line.replaceWith(...tokens.map(span));
  }
}

function span([className, text]) {
  if (!className) return text;
  const node = make("span");
  node.className = className;
  node.textContent = text;
  return node;
}

function copyButton() {
  const button = make("button");
  button.type = "button";
  button.dataset.copy = "code";
  button.textContent = gettext("Copy");
  return button;
}

/** Adds to the text at the end of `node`. */
export function appendPlain(node, text) {
  if (node.lastChild?.nodeType === Node.TEXT_NODE) node.lastChild.appendData(text);
  else node.append(document.createTextNode(text));
}
