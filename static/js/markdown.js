// Incremental Markdown renderer for streamed text.
//
// The parser only reports tokens; this module creates every node, from a fixed list of
// elements. So HTML in a model's text never becomes HTML of the page, an image becomes a
// link (nothing is fetched), and only http, https and mailto URLs become links. When a
// turn ends, the server's rendering (conversations/pages/markdown.py) replaces this one.

import * as smd from "../vendor/streaming-markdown/smd.js";
import { Highlighter } from "./reading/highlight.js";
import { nextLineBox, removeLastLine } from "./reading/long-paragraphs.js";
import { TableRows } from "./reading/table-rows.js";
import { FORMULA_BEGIN, FORMULA_END, FormulaGuard, unguarded } from "./math.js";
import { gettext } from "./texts.js";

/** Runs of marks, which the parser joins again for each mark: 1 MB takes half a minute. */
const LONGEST_RUN = 1000; // characters
const RUN = new RegExp(`([\`*_~])\\1{${LONGEST_RUN - 1}}`);
const STEP = 2000; // characters between two looks at the clock
/** Characters of a part of a long text, as conversations/pages/markdown.py has it. */
const PART = 8000;
const ROWS = 100; // lines of code, or rows of a table, that the browser lays out by themselves
const LINE_PIECE = /[^\n]*\n|[^\n]+/g;
const DEEPEST = 24; // tokens in one another, as many as the parser remembers
const { Token, Attr } = smd;
const ALLOWED = new Set(["http:", "https:", "mailto:"]);
const MOST_TRIMMED = 10; // characters behind an address
/** As in conversations/pages/reading/addresses.py; tests/js/address_cases.json tests both. */
const END_OF_SENTENCE = new Set(".,;:!?'\"…。，；：！？、");
const FENCE = /^\s*```/;
const LETTER = /\p{L}/u;
/** Letters of the scripts from right to left: Hebrew, Arabic and others. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const BLOCK = /[^\s`~|>*+\-\d]/; // begins neither a list item nor what may go on in one

const TAGS = {
  [Token.Paragraph]: "p",
  [Token.Blockquote]: "blockquote",
  [Token.List_Unordered]: "ul",
  [Token.List_Ordered]: "ol",
  [Token.List_Item]: "li",
  [Token.Line_Break]: "br",
  [Token.Rule]: "hr",
  [Token.Italic_Ast]: "em",
  [Token.Italic_Und]: "em",
  [Token.Strong_Ast]: "strong",
  [Token.Strong_Und]: "strong",
  [Token.Strike]: "s",
  [Token.Code_Inline]: "code",
  [Token.Link]: "a",
  [Token.Raw_URL]: "a",
  [Token.Image]: "a",
};

const HEADINGS = [
  Token.Heading_1,
  Token.Heading_2,
  Token.Heading_3,
  Token.Heading_4,
  Token.Heading_5,
  Token.Heading_6,
];
const HEADINGS_ABOVE = 2; // levels used by the page's title and the turn
const DEEPEST_HEADING = 6;

// Top-level elements get the direction of their first letter; children inherit it.
const DIRECTED = new Set([
  Token.Paragraph,
  ...HEADINGS,
  Token.Blockquote,
  Token.List_Unordered,
  Token.List_Ordered,
]);

const FORMULA_EDGES = new RegExp(`([${FORMULA_BEGIN}${FORMULA_END}])`);
const OPEN_FORMULA = ".math:not([data-whole])";

/** The URL if it may become a link, else null. */
export function allowedURL(address) {
  try {
    return ALLOWED.has(new URL(address).protocol) ? address : null;
  } catch {
    return null; // relative, or no address at all
  }
}

/**
 * Shows a growing text. Each top-level paragraph has its own parser, because the
 * parser would add a paragraph after a nested list to the list.
 */
export class MarkdownStream {
  #root;
  #part; // the element that gets the next top-level block
  #partEnd; // characters after which a new part begins
  #parser;
  #written = 0; // characters
  #given = ""; // what was to be shown last
  #text = ""; // of it, what the parser is given: formulas are guarded, rows have bars
  #formulas;
  #rows;
  #heads; // where tables begin whose head is shown as a line of a paragraph
  #headings; // levels, as written, of those that the next heading may stand under
  #line = 0; // where the line begins that is not whole yet
  #borders = []; // where paragraphs at the top level begin that are not shown yet
  #isAfterBlank = false;
  #isFenced = false;
  #isPlain = false;

  constructor(root) {
    this.#root = root;
    this.#begin();
  }

  /**
   * Shows `text`, which usually extends the text shown before, as far as it comes `until`
   * that time of `performance.now()`. Returns whether all of it is shown.
   */
  update(text, until = Infinity) {
    if (!text.startsWith(this.#given)) this.#begin();
    this.#given = text;
    return this.#show(this.#formulas.push(text), until);
  }

  #show(fresh, until = Infinity, isOver = false) {
    for (const { text, isHead } of this.#rows.push(fresh, isOver)) {
      if (isHead) this.#heads.add(this.#text.length);
      this.#text += text;
    }
    this.#borders.push(...this.#starts());
    while (this.#written < this.#text.length) {
      if (performance.now() >= until) return false;
      this.#step();
    }
    return true;
  }

  #step() {
    const [border = this.#text.length] = this.#borders;
    const step = this.#isPlain ? Infinity : STEP;
    this.#write(Math.min(border, this.#written + step));
    if (this.#written < border || !this.#borders.length) return;
    this.#borders.shift();
    this.#endParser();
    if (this.#heads.delete(border)) removeLastLine(this.#part);
    if (this.#written >= this.#partEnd) this.#beginPart();
    this.#parser = smd.parser(renderer(this.#part, this.#headings));
  }

  /** The browser lays out a part by itself, so that a long text grows as fast as a short
   *  one. What is shown already stays where it is: a reader may have selected it. */
  #beginPart() {
    this.#part = this.#root.appendChild(make("div"));
    this.#part.classList.add("prose", "prose-part");
    this.#partEnd = this.#written + PART;
  }

  /** The text is complete: show characters that were held back. */
  end() {
    this.#show(this.#formulas.push(this.#given, true), Infinity, true);
    this.#endParser();
  }

  #endParser() {
    this.#guarded(() => smd.parser_end(this.#parser));
  }

  #begin() {
    this.#root.replaceChildren();
    // Blocks have their own directions. The browser would look for the direction of them
    // all again with each element: in a table of 3,000 rows for 20 ms a frame.
    this.#root.dir = "ltr";
    this.#part = this.#root;
    this.#partEnd = PART;
    this.#headings = [];
    this.#parser = smd.parser(renderer(this.#part, this.#headings));
    this.#formulas = new FormulaGuard();
    this.#rows = new TableRows();
    this.#heads = new Set();
    this.#given = this.#text = "";
    this.#written = this.#line = 0;
    this.#borders = [];
    this.#isAfterBlank = this.#isFenced = this.#isPlain = false;
  }

  /** Positions of top-level paragraphs, and of tables whose head was taken for a line of
   *  one, in the new part of the text. */
  *#starts() {
    while (this.#line < this.#text.length) {
      const first = this.#text[this.#line];
      const isParagraph = this.#isAfterBlank && !this.#isFenced && BLOCK.test(first);
      if (isParagraph || this.#heads.has(this.#line)) yield this.#line;
      this.#isAfterBlank = false;
      const end = this.#text.indexOf("\n", this.#line);
      if (end === -1) return;
      const line = this.#text.slice(this.#line, end);
      if (FENCE.test(line)) this.#isFenced = !this.#isFenced;
      this.#isAfterBlank = line.trim() === "";
      this.#line = end + 1;
    }
  }

  #write(end) {
    const fresh = this.#text.slice(this.#written, end);
    const before = Math.max(0, this.#written - LONGEST_RUN);
    this.#isPlain ||= RUN.test(this.#text.slice(before, end));
    this.#written = end;
    this.#guarded(() => smd.parser_write(this.#parser, fresh));
  }

  /** If the parser fails, shows the text unformatted. */
  #guarded(act) {
    try {
      if (!this.#isPlain) act();
    } catch {
      this.#isPlain = true;
    }
    if (this.#isPlain) this.#showPlain();
  }

  #showPlain() {
    const plain = make("p");
    plain.className = "plain";
    plain.dir = "auto";
    plain.append(unguarded(this.#text.slice(0, this.#written)));
    this.#root.replaceChildren(plain);
  }
}

function renderer(root, headings) {
  return {
    data: { nodes: [root], headings },
    add_token: ({ nodes, headings }, token) => {
      if (nodes.length > DEEPEST) throw new RangeError("nested too deeply");
      const tag = HEADINGS.includes(token) ? headingTag(headings, token) : TAGS[token];
      nodes.push(nodeFor(token, tag, nodes.at(-1), nodes.length === 1));
    },
    end_token: ({ nodes }) => {
      if (nodes.length === 1) return;
      const node = nodes.pop();
      finish(node);
      if (node.tagName === "BR") nodes.push(nextLineBox(nodes.pop()));
    },
    add_text: ({ nodes }, text) => appendText(nodes.at(-1), text),
    set_attr: ({ nodes }, name, value) => setAttribute(nodes.at(-1), name, value),
  };
}

/** The tag of the next heading; gaps between levels are closed, as the server does. */
function headingTag(above, token) {
  const written = HEADINGS.indexOf(token);
  while (above.at(-1) >= written) above.pop();
  above.push(written);
  return `h${Math.min(above.length + HEADINGS_ABOVE, DEEPEST_HEADING)}`;
}

function nodeFor(token, tag, parent, isTopLevel) {
  switch (token) {
    case Token.Document:
      return parent;
    case Token.Code_Block:
    case Token.Code_Fence:
      return codeBlock(parent);
    case Token.Link:
      return link(parent);
    case Token.Raw_URL:
      return bareLink(parent);
    case Token.Checkbox:
      return parent.appendChild(checkbox(parent));
    case Token.Table:
      return table(parent);
    case Token.Table_Row:
      return row(parent);
    case Token.Table_Cell:
      return cell(parent);
    default: {
      const node = parent.appendChild(make(tag ?? "span"));
      if (token === Token.Image) node.className = "image-link";
      if (DIRECTED.has(token) && isTopLevel) node.dir = "auto";
      return node;
    }
  }
}

const make = (tag) => document.createElement(tag);

const brackets = new WeakMap(); // link without an address yet -> its bracket

/** What begins with a bracket is a link once its address is there, and text until then. */
function link(parent) {
  const node = parent.appendChild(make("a"));
  const bracket = make("span");
  bracket.textContent = "[";
  node.append(bracket);
  brackets.set(node, bracket);
  return node;
}

/** Without an address it was text, such as `a[0]`, or the mark of a footnote. */
function unlink(node) {
  const words = node.textContent;
  if (words.startsWith("[^")) {
    const mark = make("sup");
    mark.textContent = words.slice(2);
    node.replaceWith(mark);
    return;
  }
  node.append("]");
  node.replaceWith(...node.childNodes);
}

const bareLinks = new WeakSet(); // whose words are their address

function bareLink(parent) {
  const node = parent.appendChild(make("a"));
  bareLinks.add(node);
  return node;
}

/** The end of a sentence is no part of an address, as on the server. */
function trimAddress(link) {
  const words = link.textContent;
  const least = words.length - MOST_TRIMMED;
  let end = words.length;
  const isOver = () => END_OF_SENTENCE.has(words[end - 1]) || isUnopened(words.slice(0, end));
  while (end > least && isOver()) end -= 1;
  if (end === words.length) return;
  link.textContent = words.slice(0, end);
  setLink(link, link.textContent);
  appendPlain(link.parentElement, words.slice(end));
}

const isUnopened = (address) =>
  address.endsWith(")") && address.split(")").length > address.split("(").length;

function codeBlock(parent) {
  const box = parent.appendChild(make("div"));
  box.className = "code";
  const head = box.appendChild(make("div"));
  head.className = "code-head";
  head.append(make("span"), copyButton());
  const pre = box.appendChild(make("pre"));
  pre.tabIndex = 0;
  pre.dir = "ltr";
  const code = pre.appendChild(make("code"));
  growing.set(code, new GrowingCode(code));
  return code;
}

const growing = new WeakMap(); // code -> GrowingCode

/** Highlights each line when it is whole; the one that grows is plain. So many lines are
 *  an element, which the browser lays out by itself. */
class GrowingCode {
  #code;
  #part = null;
  #lines = 0; // of the part
  #highlighter = null;
  #line = null; // the text node of the line that grows

  constructor(code) {
    this.#code = code;
  }

  set language(name) {
    const highlighter = new Highlighter(name);
    this.#highlighter = highlighter.isKnown ? highlighter : null;
  }

  add(text) {
    for (const piece of text.match(LINE_PIECE) ?? []) {
      if (!this.#part || this.#lines === ROWS) this.#beginPart();
      this.#grow(piece);
      if (piece.endsWith("\n")) this.#end();
    }
  }

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

function checkbox(item) {
  item.className = "task-list-item";
  const box = make("input");
  box.type = "checkbox";
  box.disabled = true;
  box.className = "task-list-item-checkbox";
  return box;
}

function table(parent) {
  const scroll = parent.appendChild(make("div"));
  scroll.className = "table-scroll";
  return scroll.appendChild(make("table"));
}

function row(parent) {
  const last = parent.lastElementChild; // the head, or rows
  const isFull = last?.tagName === "THEAD" || last?.childElementCount >= ROWS;
  const group = last && !isFull ? last : parent.appendChild(make(last ? "tbody" : "thead"));
  return group.appendChild(make("tr"));
}

function cell(parent) {
  const node = parent.appendChild(make(parent.closest("thead") ? "th" : "td"));
  node.dir = "auto";
  return node;
}

/** Labels a checkbox with the text beside it, and turns a table as its head is written. */
function finish(node) {
  if (node.tagName === "TH") setDirection(node);
  if (brackets.has(node)) return unlink(node);
  if (bareLinks.has(node)) return trimAddress(node);
  const box = node.querySelector?.(":scope > .task-list-item-checkbox");
  box?.setAttribute("aria-label", node.textContent.trim());
}

/** The first letter of a table's head decides, as on the server. */
function setDirection(head) {
  const table = head.closest("table");
  const first = table.dir ? null : LETTER.exec(head.textContent);
  if (first) table.dir = RIGHT_TO_LEFT.test(first[0]) ? "rtl" : "ltr";
}

/** Appends text, and a formula as an element of its own, which may come in pieces. */
function appendText(node, guardedText) {
  const code = growing.get(node);
  if (code) return code.add(unguarded(guardedText));
  for (const piece of guardedText.split(FORMULA_EDGES)) {
    const open = node.lastElementChild?.matches(OPEN_FORMULA) && node.lastElementChild;
    if (piece === FORMULA_BEGIN) node.append(formula());
    else if (piece === FORMULA_END && open) open.dataset.whole = "";
    else if (piece && piece !== FORMULA_END) appendPlain(open || node, unguarded(piece));
  }
}

function formula() {
  const node = make("span");
  node.className = "math";
  node.dir = "ltr";
  return node;
}

function appendPlain(node, text) {
  if (node.lastChild?.nodeType === Node.TEXT_NODE) node.lastChild.appendData(text);
  else node.append(text);
}

function setAttribute(node, name, value) {
  switch (name) {
    case Attr.Href:
    case Attr.Src:
      return setLink(node, value);
    case Attr.Lang:
      node.closest(".code").querySelector("span").textContent = value.split(" ")[0];
      growing.get(node).language = value.split(" ")[0];
      return;
    case Attr.Checked:
      node.checked = true;
      return;
    case Attr.Start:
      node.start = Number(value);
  }
}

function setLink(node, value) {
  const url = allowedURL(unguarded(value.split(" ")[0])); // a title may follow the address
  if (!url) return;
  brackets.get(node)?.remove();
  brackets.delete(node);
  node.href = url;
  node.target = "_blank";
  node.rel = "noopener noreferrer nofollow";
}
