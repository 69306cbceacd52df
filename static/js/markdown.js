// Markdown as it streams in, through a renderer of our own.
//
// The parser only names tokens; every node is made here, from a fixed list of elements
// and text. So no HTML of a model's becomes HTML of the page, an image becomes a link
// (nothing is fetched), and only http, https and mailto addresses become links. When a
// turn is over, the server's rendering (conversations/pages/markdown.py) takes the place.

import * as smd from "../vendor/streaming-markdown/smd.js";
import { FormulaGuard, unguarded } from "./math.js";

/** Marks in a row, which the parser joins anew with each: a megabyte takes half a minute. */
const LONGEST_RUN = 1000; // characters
const RUN = new RegExp(`([\`*_~])\\1{${LONGEST_RUN - 1}}`);
const { Token, Attr } = smd;
const ALLOWED = new Set(["http:", "https:", "mailto:"]);
const FENCE = /^\s*```/;
const BLOCK = /[^\s`~|>*+\-\d]/; // begins neither a list item nor what may go on in one

const TAGS = {
  [Token.Paragraph]: "p",
  [Token.Heading_1]: "h3", // the page has the levels above
  [Token.Heading_2]: "h4",
  [Token.Heading_3]: "h5",
  [Token.Heading_4]: "h6",
  [Token.Heading_5]: "h6",
  [Token.Heading_6]: "h6",
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

// At the top level each runs as its first letter does, and what is inside goes with it.
const DIRECTED = new Set([
  Token.Paragraph,
  Token.Heading_1,
  Token.Heading_2,
  Token.Heading_3,
  Token.Heading_4,
  Token.Heading_5,
  Token.Heading_6,
  Token.Blockquote,
  Token.List_Unordered,
  Token.List_Ordered,
]);

/** The address where it may be a link, else null. */
export function allowedURL(address) {
  try {
    return ALLOWED.has(new URL(address).protocol) ? address : null;
  } catch {
    return null; // relative, or no address at all
  }
}

/**
 * Shows a text that grows. Each top-level paragraph has a parser of its own, because the
 * parser would take one that follows a nested list for a part of the list.
 */
export class MarkdownStream {
  #root;
  #parser;
  #written = 0; // characters
  #given = ""; // what was to be shown last
  #text = ""; // of it, what the parser is given: formulas are guarded
  #formulas;
  #line = 0; // where the line begins that is not whole yet
  #isAfterBlank = false;
  #isFenced = false;
  #isPlain = false;

  constructor(root) {
    this.#root = root;
    this.#begin();
  }

  /** Show `text`, of which most has usually been shown already. */
  update(text) {
    if (!text.startsWith(this.#given)) this.#begin();
    this.#given = text;
    this.#show(this.#formulas.push(text));
  }

  #show(fresh) {
    this.#text += fresh;
    for (const start of this.#starts()) {
      this.#write(start);
      this.#endParser();
      this.#parser = smd.parser(renderer(this.#root));
    }
    this.#write(this.#text.length);
  }

  /** Nothing follows: show what waits for its other half. */
  end() {
    this.#show(this.#formulas.push(this.#given, true));
    this.#endParser();
  }

  #endParser() {
    this.#guarded(() => smd.parser_end(this.#parser));
  }

  #begin() {
    this.#root.replaceChildren();
    this.#parser = smd.parser(renderer(this.#root));
    this.#formulas = new FormulaGuard();
    this.#given = this.#text = "";
    this.#written = this.#line = 0;
    this.#isAfterBlank = this.#isFenced = this.#isPlain = false;
  }

  /** Where top-level paragraphs begin, in what has not been looked at. */
  *#starts() {
    while (this.#line < this.#text.length) {
      const first = this.#text[this.#line];
      if (this.#isAfterBlank && !this.#isFenced && BLOCK.test(first)) yield this.#line;
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

  /** A parser that stumbles (it nests 24 deep at most) must not lose text. */
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
    plain.append(unguarded(this.#text.slice(0, this.#written)));
    this.#root.replaceChildren(plain);
  }
}

function renderer(root) {
  return {
    data: { nodes: [root] },
    add_token: ({ nodes }, token) => nodes.push(nodeFor(token, nodes.at(-1), nodes.length === 1)),
    end_token: ({ nodes }) => {
      if (nodes.length > 1) finish(nodes.pop());
    },
    add_text: ({ nodes }, text) => appendText(nodes.at(-1), text),
    set_attr: ({ nodes }, name, value) => setAttribute(nodes.at(-1), name, value),
  };
}

function nodeFor(token, parent, isTopLevel) {
  switch (token) {
    case Token.Document:
      return parent;
    case Token.Code_Block:
    case Token.Code_Fence:
      return codeBlock(parent);
    case Token.Checkbox:
      return parent.appendChild(checkbox(parent));
    case Token.Table:
      return table(parent);
    case Token.Table_Row:
      return row(parent);
    case Token.Table_Cell:
      return cell(parent);
    default: {
      const node = parent.appendChild(make(TAGS[token] ?? "span"));
      if (token === Token.Image) node.className = "image-link";
      if (DIRECTED.has(token) && isTopLevel) node.dir = "auto";
      return node;
    }
  }
}

const make = (tag) => document.createElement(tag);

function codeBlock(parent) {
  const box = parent.appendChild(make("div"));
  box.className = "code";
  const head = box.appendChild(make("div"));
  head.className = "code-head";
  head.append(make("span"), copyButton());
  const pre = box.appendChild(make("pre"));
  pre.tabIndex = 0;
  pre.dir = "ltr";
  return pre.appendChild(make("code"));
}

function copyButton() {
  const button = make("button");
  button.type = "button";
  button.dataset.copy = "code";
  button.textContent = "Copy";
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
  const section = parent.tHead ? "tbody" : "thead";
  const group = parent.tBodies?.[0] ?? parent.appendChild(make(section));
  return group.appendChild(make("tr"));
}

function cell(parent) {
  const node = parent.appendChild(make(parent.closest("thead") ? "th" : "td"));
  node.dir = "auto";
  return node;
}

/** A box is named by what stands beside it. */
function finish(node) {
  const box = node.querySelector?.(":scope > .task-list-item-checkbox");
  box?.setAttribute("aria-label", node.textContent.trim());
}

function appendText(node, guardedText) {
  const text = unguarded(guardedText);
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
      return;
    case Attr.Checked:
      node.checked = true;
      return;
    case Attr.Start:
      node.start = Number(value);
  }
}

function setLink(node, value) {
  const url = allowedURL(value.split(" ")[0]); // a title may follow the address
  if (!url) return;
  node.href = url;
  node.target = "_blank";
  node.rel = "noopener noreferrer nofollow";
}
