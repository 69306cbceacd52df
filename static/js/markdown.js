// Incremental Markdown renderer for streamed text.
//
// `Blocks` finds the blocks, and the parser what is in their lines; this module creates every node, from a fixed list of
// elements. So HTML in a model's text never becomes HTML of the page, an image becomes a
// link (nothing is fetched), and only http, https and mailto URLs become links. When a
// turn ends, the server's rendering (conversations/pages/markdown.py) replaces this one.

import * as smd from "../vendor/streaming-markdown/smd.js";
import { addressLength } from "./reading/addresses.js";
import { Blocks } from "./reading/blocks.js";
import { appendPlain, codeBlock } from "./reading/growing-code.js";
import { groupForNextRow } from "./reading/long-tables.js";
import { nextLineBox, removeLastLine } from "./reading/long-paragraphs.js";
import { TableRows } from "./reading/table-rows.js";
import { beginningOfEntity, entityAtEnd, withoutEntities } from "./reading/entities.js";
import { FORMULA_BEGIN, FORMULA_END, FormulaGuard, unguarded } from "./math.js";

/** Runs of marks, which the parser joins again for each mark: 1 MB takes half a minute. */
const LONGEST_RUN = 1000; // characters
const RUN = new RegExp(`([\`*_~])\\1{${LONGEST_RUN - 1}}`);
const STEP = 500; // characters between two looks at the clock
/** Characters of a part of a long text, as conversations/pages/markdown.py has it. */
const PART = 8000;
const DEEPEST = 24; // tokens in one another, as many as the parser remembers
const { Token, Attr } = smd;
const ALLOWED = new Set(["http:", "https:", "mailto:"]);
const LETTER = /\p{L}/u;
/** Letters of the scripts from right to left: Hebrew, Arabic and others. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

const TIGHT = "is-tight"; // a list without blank lines

const TAGS = {
  [Token.Line_Break]: "br",
  [Token.Italic_Ast]: "em",
  [Token.Italic_Und]: "em",
  [Token.Strong_Ast]: "strong",
  [Token.Strong_Und]: "strong",
  [Token.Strike]: "s",
  [Token.Code_Inline]: "code",
  [Token.Image]: "a",
};

const HEADINGS_ABOVE = 2; // levels used by the page's title and the turn
const DEEPEST_HEADING = 6;

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
 * Shows a growing text. Its lists and quotations are elements of this class, and each
 * block in them has a parser of its own.
 */
export class MarkdownStream {
  #root;
  #view;
  #blocks;
  #written = 0; // characters
  #given = ""; // what was to be shown last
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
    while (this.#written < text.length) {
      if (performance.now() >= until) return false;
      this.#write(this.#isPlain ? text.length : this.#written + STEP);
    }
    return true;
  }

  /** The text is complete: show characters that were held back. */
  end() {
    this.update(this.#given);
    this.#guarded(() => this.#blocks.end());
  }

  #begin() {
    this.#root.replaceChildren();
    // Blocks have their own directions. The browser would look for the direction of them
    // all again with each element: in a table of 3,000 rows for 20 ms a frame.
    this.#root.dir = "ltr";
    this.#view = new View(this.#root);
    this.#blocks = new Blocks(this.#view);
    this.#given = "";
    this.#written = 0;
    this.#isPlain = false;
  }

  #write(end) {
    const fresh = this.#given.slice(this.#written, end);
    const before = Math.max(0, this.#written - LONGEST_RUN);
    this.#isPlain ||= RUN.test(this.#given.slice(before, end));
    this.#written = Math.min(end, this.#given.length);
    this.#view.written = this.#written;
    this.#guarded(() => this.#blocks.push(fresh));
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
    plain.append(this.#given.slice(0, this.#written));
    this.#root.replaceChildren(plain);
  }
}

/** The elements of a growing text, as `Blocks` reports them. */
class View {
  written = 0; // characters of the text
  #root;
  #part; // the element that gets the next top-level block
  #partEnd = PART; // characters after which a new part begins
  #open = []; // elements of lists, items and quotations
  #headings = []; // levels, as written, of those that the next heading may stand under
  #block = null; // the one that grows

  constructor(root) {
    this.#root = this.#part = root;
  }

  open(tag, start) {
    if (this.#open.length >= DEEPEST) throw new RangeError("nested too deeply");
    const node = this.#container().appendChild(make(tag));
    if (!this.#open.length) node.dir = "auto";
    if (tag === "ul" || tag === "ol") node.className = TIGHT;
    if (start !== undefined && start !== 1) node.start = start;
    this.#open.push(node);
  }

  close() {
    this.#open.pop();
  }

  loosen(depth) {
    this.#open[depth].className = "";
  }

  beginParagraph(task) {
    const box = task === undefined ? null : checkbox(this.#open.at(-1), task);
    this.#block = new Words(this.#container(), this.#isTop, "p", box);
  }

  beginHeading(level) {
    const tag = headingTag(this.#headings, level);
    this.#block = new Words(this.#container(), this.#isTop, tag);
  }

  beginCode(language) {
    this.#block = codeBlock(this.#container(), language);
  }

  add(text) {
    this.#block.add(text);
  }

  end() {
    this.#block.end();
    this.#block = null;
  }

  underline(level) {
    const last = (this.#open.at(-1) ?? this.#part).lastElementChild; // no new part begins
    if (last?.tagName !== "P") return level === 2 ? this.addRule() : undefined;
    const heading = make(headingTag(this.#headings, level));
    if (last.dir) heading.dir = last.dir;
    heading.append(...last.childNodes);
    last.replaceWith(heading);
  }

  addRule() {
    this.#container().append(make("hr"));
  }

  get #isTop() {
    return this.#open.length === 0;
  }

  /** The element that gets the next block. */
  #container() {
    if (this.#isTop && this.written >= this.#partEnd) this.#beginPart();
    return this.#open.at(-1) ?? this.#part;
  }

  /** The browser lays out a part by itself, so that a long text grows as fast as a short
   *  one. What is shown already stays where it is: a reader may have selected it. */
  #beginPart() {
    this.#part = this.#root.appendChild(make("div"));
    this.#part.classList.add("prose", "prose-part");
    this.#partEnd = this.written + PART;
  }
}

/** A heading, or a paragraph with tables in it. */
class Words {
  #container;
  #shape;
  #text = "";
  #formulas = new FormulaGuard();
  #rows = new TableRows();
  #heldBack = ""; // the beginning of an entity
  #parser;

  constructor(container, isTop, tag, box = null) {
    this.#container = container;
    this.#shape = { isTop, tag, box };
    this.#parser = smd.parser(renderer(container, this.#shape));
  }

  add(text) {
    this.#text += text;
    this.#show(this.#formulas.push(this.#text));
  }

  end() {
    this.#show(this.#formulas.push(this.#text, true), true);
    smd.parser_end(this.#parser);
    const { box } = this.#shape;
    if (box?.parentElement) box.setAttribute("aria-label", box.parentElement.textContent.trim());
  }

  #show(fresh, isOver = false) {
    const all = this.#heldBack + fresh;
    this.#heldBack = isOver ? "" : entityAtEnd(all);
    const shown = all.slice(0, all.length - this.#heldBack.length);
    for (const { text, isHead, sides } of this.#rows.push(shown, isOver)) {
      if (isHead) this.#beginTable();
      smd.parser_write(this.#parser, text);
      if (sides && this.#shape.table) alignColumns(this.#shape.table, sides);
    }
  }

  /** What was shown as the last line is the head of a table. */
  #beginTable() {
    smd.parser_end(this.#parser);
    removeLastLine(this.#container);
    this.#parser = smd.parser(renderer(this.#container, this.#shape));
  }
}

function renderer(root, shape) {
  return {
    data: { nodes: [root], shape },
    add_token: ({ nodes, shape }, token) => {
      if (nodes.length > DEEPEST) throw new RangeError("nested too deeply");
      nodes.push(nodeFor(token, shape, nodes.at(-1)));
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
function headingTag(above, written) {
  while (above.at(-1) >= written) above.pop();
  above.push(written);
  return `h${Math.min(above.length + HEADINGS_ABOVE, DEEPEST_HEADING)}`;
}

function nodeFor(token, shape, parent) {
  switch (token) {
    case Token.Document:
      return parent;
    case Token.Paragraph:
      return words(parent, shape);
    case Token.Link:
      return link(parent);
    case Token.Raw_URL:
      return bareLink(parent);
    case Token.Table:
      return (shape.table = table(parent));
    case Token.Table_Row:
      return row(parent);
    case Token.Table_Cell:
      return cell(parent);
    default: {
      const node = parent.appendChild(make(TAGS[token] ?? "span"));
      if (token === Token.Image) node.className = "image-link";
      return node;
    }
  }
}

/** A paragraph or a heading. Those at the top level get the direction of their first
 *  letter; children inherit it. */
function words(parent, { isTop, tag, box }) {
  const node = parent.appendChild(make(tag));
  if (isTop) node.dir = "auto";
  if (box && !box.parentElement) node.append(box, " ");
  return node;
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
  const end = addressLength(words);
  if (end === words.length) return;
  link.textContent = words.slice(0, end);
  setLink(link, link.textContent);
  appendPlain(link.parentElement, words.slice(end));
}

function checkbox(item, isChecked) {
  item.className = "task-list-item";
  const box = make("input");
  box.type = "checkbox";
  box.disabled = true;
  box.checked = isChecked;
  box.className = "task-list-item-checkbox";
  return box;
}

function table(parent) {
  const scroll = parent.appendChild(make("div"));
  scroll.className = "table-scroll";
  return scroll.appendChild(make("table"));
}

const sidesOf = new WeakMap(); // table, or its row -> where its columns want their text

function row(table) {
  const node = groupForNextRow(table).appendChild(make("tr"));
  if (sidesOf.has(table)) sidesOf.set(node, sidesOf.get(table));
  return node;
}

function cell(parent) {
  const side = sidesOf.get(parent)?.[parent.childElementCount];
  const node = parent.appendChild(make(parent.closest("thead") ? "th" : "td"));
  node.dir = "auto";
  if (side) node.className = `to-${side}`;
  return node;
}

/** The head stands before the line that aligns it. */
function alignColumns(table, sides) {
  sidesOf.set(table, sides);
  const heads = table.querySelector("tr")?.children ?? [];
  for (const [at, head] of [...heads].entries()) if (sides[at]) head.className = `to-${sides[at]}`;
}

/** Turns a table as its head is written, and links as far as they are some. */
function finish(node) {
  if (node.tagName === "TH") setDirection(node);
  if (brackets.has(node)) return unlink(node);
  if (bareLinks.has(node)) trimAddress(node);
}

/** The first letter of a table's head decides, as on the server. */
function setDirection(head) {
  const table = head.closest("table");
  const first = table.dir ? null : LETTER.exec(head.textContent);
  if (first) table.dir = RIGHT_TO_LEFT.test(first[0]) ? "rtl" : "ltr";
}

/** Appends text, and a formula as an element of its own, which may come in pieces. */
function appendText(node, guardedText) {
  for (const piece of guardedText.split(FORMULA_EDGES)) {
    const open = node.lastElementChild?.matches(OPEN_FORMULA) && node.lastElementChild;
    if (piece === FORMULA_BEGIN) node.append(formula());
    else if (piece === FORMULA_END && open) open.dataset.whole = "";
    else if (piece && piece !== FORMULA_END) {
      const isAsWritten = open || node.tagName === "CODE";
      if (isAsWritten) appendPlain(open || node, unguarded(piece));
      else appendWithEntities(node, unguarded(piece));
    }
  }
}

function formula() {
  const node = make("span");
  node.className = "math";
  node.dir = "ltr";
  return node;
}

const tails = new WeakMap(); // element -> the end of its text as written, if an entity begins there

/** The parser gives an entity in pieces: what was shown of it is replaced. */
function appendWithEntities(node, piece) {
  const last = node.lastChild?.nodeType === Node.TEXT_NODE ? node.lastChild : null;
  const before = (last && tails.get(node)) || "";
  const written = before + piece;
  tails.set(node, beginningOfEntity(written));
  if (before) last.data = last.data.slice(0, -before.length);
  appendPlain(node, withoutEntities(written));
}

function setAttribute(node, name, value) {
  if (name === Attr.Href || name === Attr.Src) setLink(node, value);
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
