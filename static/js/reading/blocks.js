// Blocks of streamed Markdown: lists, quotations, code, headings and paragraphs.
//
// The rules are those of CommonMark, by which the server reads the whole text. The start
// of a line is waited for until it is certain what it begins; what follows is reported as
// it comes. The view that is told of the blocks has these methods:
//
//     open(tag, start)         a list, an item or a quotation begins inside the open one
//     close()                  ... and the innermost one ends
//     loosen(depth)            the list that was opened at that depth has blank lines
//     beginParagraph(task)     task: undefined, or whether its checkbox is checked
//     beginHeading(level)
//     beginCode(language)
//     add(text)                to the block that was begun last
//     end()                    ... which is over
//     underline(level)         the last paragraph was a heading
//     addRule()

import { guard } from "../math.js";
import { LineStart } from "./line-start.js";

const PIECE = /[^\n]*\n|[^\n]+/g;
/** A line of these characters alone may begin anything yet. */
const MARKS = /^[\s\d>*+\-_=#`~|:.)$\\[]*$/;
/** A number that is no item's, so that its line is text. */
const NUMBER = /\d[^\d.)]|\d[.)]\S|\d{10}/;
const LONGEST_ITEM_NUMBER = 9; // digits
const OPEN_FENCE = /^[\s\d>*+\-.)]*(?:`{3}|~{3})/;
const OPEN_TASK = /(?:[-+*]|\d[.)])[ \t]+\[(?:[ xX](?:\][\s\d>*+\-_=#`~|:.)$\\[]*)?)?$/;
const LONGEST_START = 1000; // characters of a line with such a start that are waited for
const CODE_INDENT = 4; // columns
const HEADING = /^(#{1,6})(?:[ \t]+|$)/;
const HASHES = /(?<!#)#+$/;
const MAY_END_HEADING = /[ \t#]+$/;
const FENCE = /^(?:(`{3,})([^`]*)|(~{3,})(.*))$/;
const RULE = /^([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const UNDERLINE = /^(=+|-+)[ \t]*$/;
const TASK = /^\[([ xX])\][ \t]+(?=\S)/;
const FORMULAS = { $$: "$$", "\\[": "\\]" }; // that are blocks, and their ends
/** What the parser of paragraphs would take for the start of another block. */
const MISLEADING = /^(?:[-+*](?=[ \t]|$)|#{1,6}(?=[ \t]|$)|>)/;
const MISLEADING_NUMBER = /^(\d{1,9})([.)])(?=[ \t]|$)/;

const QUOTE = "blockquote";
const ITEM = "li";

/** Reads a growing text and tells a view of its blocks. */
export class Blocks {
  #view;
  #stack = []; // open lists, items and quotations: { tag, ... }
  #block = null; // that was begun last: { kind, ... }
  #line = ""; // that is not whole yet
  #isOfMarks = true; // whether the line consists of marks so far
  #isBegun = false; // whether it is certain what the line is
  #isAfterBlank = false;
  #quotesAtBlank = 0; // in which the blank line was

  constructor(view) {
    this.#view = view;
  }

  /** Reads `fresh`, which follows what was read before. */
  push(fresh) {
    for (const piece of fresh.match(PIECE) ?? []) this.#read(piece);
  }

  /** The text is over. */
  end() {
    if (this.#line && !this.#isBegun) this.#begin(this.#line);
    this.#endBlock();
    this.#closeTo(0);
  }

  #read(piece) {
    const isWhole = piece.endsWith("\n");
    const text = isWhole ? piece.slice(0, -1) : piece;
    if (this.#isBegun) this.#add(text);
    else {
      this.#line += text;
      this.#isOfMarks &&= MARKS.test(text) && !this.#endsByNumber(text.length);
      if (isWhole || !(this.#isOfMarks || this.#isStartOpen())) this.#begin(this.#line);
    }
    if (isWhole) this.#endLine();
  }

  /** Whether the line has a number of text that ends in its last characters. */
  #endsByNumber(length) {
    return NUMBER.test(this.#line.slice(-length - LONGEST_ITEM_NUMBER - 1));
  }

  #isStartOpen() {
    if (this.#line.length > LONGEST_START) return false;
    return OPEN_FENCE.test(this.#line) || OPEN_TASK.test(this.#line);
  }

  #endLine() {
    const block = this.#block;
    if (block?.kind === "heading") this.#endBlock();
    if (block?.kind === "paragraph") this.#endParagraphLine(block);
    if (block?.kind === "code") block.newlines += 1;
    this.#line = "";
    this.#isBegun = false;
    this.#isOfMarks = true;
  }

  #endParagraphLine(block) {
    this.#view.add("\n");
    if (!block.closer) return;
    const text = block.text.trimEnd();
    block.text = "";
    if (!text.includes(block.closer)) return;
    if (text.endsWith(block.closer)) this.#endBlock();
    block.closer = "";
  }

  /** Reads a line as far as it is known. */
  #begin(line) {
    this.#isBegun = true;
    const start = new LineStart(line);
    const depth = this.#continue(start);
    const isInside = depth === this.#stack.length;
    if (this.#block?.kind === "code" && isInside && this.#continueCode(start)) return;
    if (this.#block?.kind === "code") this.#endBlock();
    if (start.isBlank) return this.#endByBlank(depth);
    if (this.#block?.closer && isInside) return this.#addLine(start.words);
    this.#beginBlock(start, depth);
    this.#isAfterBlank = false;
  }

  /** Reads the marks and blanks of the open lists and quotations that go on in the line.
   *  Returns their number. */
  #continue(start) {
    for (const [depth, each] of this.#stack.entries()) {
      if (each.tag === QUOTE && !start.takeQuote()) return depth;
      if (each.tag !== ITEM) continue;
      if (start.isBlank) {
        if (!each.hasBlocks) return depth; // a marker alone, which a blank line ends
      } else if (start.indent < each.indent) return depth;
      else start.skip(each.indent);
    }
    return this.#stack.length;
  }

  #continueCode(start) {
    const { marks, indent } = this.#block;
    if (!marks) return this.#continueIndented(start);
    const words = start.words.trimEnd();
    const isEnd = words.startsWith(marks) && words === marks[0].repeat(words.length);
    if (isEnd && start.indent < CODE_INDENT) this.#endBlock();
    else {
      start.skip(Math.min(indent, start.indent));
      this.#addCode(start.rest);
    }
    return true;
  }

  #continueIndented(start) {
    if (start.isBlank) {
      this.#isAfterBlank = true;
      return true;
    }
    if (start.indent < CODE_INDENT) return false;
    this.#isAfterBlank = false;
    start.skip(CODE_INDENT);
    this.#addCode(start.rest);
    return true;
  }

  #endByBlank(depth) {
    this.#endBlock();
    this.#closeTo(depth);
    this.#isAfterBlank = true;
    this.#quotesAtBlank = this.#quotes(this.#stack.length);
  }

  #quotes(depth) {
    return this.#stack.slice(0, depth).filter(({ tag }) => tag === QUOTE).length;
  }

  #beginBlock(start, depth) {
    let inside = depth;
    for (let next; (next = this.#openOne(start, inside)) !== null; ) inside = next;
    if (start.isBlank) return;
    const isCode = start.indent >= CODE_INDENT;
    if (!isCode && this.#beginLineBlock(start, inside)) return;
    const beginsFormula = start.words.slice(0, 2) in FORMULAS;
    const isFormula = beginsFormula && !isCode && inside === this.#stack.length;
    if (this.#isParagraph && !isFormula) return this.#addLine(start.words);
    this.#enter(inside);
    if (isCode) {
      start.skip(CODE_INDENT);
      this.#beginCode("", { marks: "", indent: 0 });
      this.#addCode(start.rest);
    } else this.#beginParagraph(start.words);
  }

  get #isParagraph() {
    return this.#block?.kind === "paragraph";
  }

  /** Whether the line at that depth belongs to no outer block of the paragraph. */
  #isInParagraph(depth) {
    return this.#isParagraph && depth === this.#stack.length;
  }

  /** Opens a quotation or an item that begins in the line. Returns how many are open then;
   *  null if none begins. */
  #openOne(start, depth) {
    if (start.isBlank || start.indent >= CODE_INDENT) return null;
    if (start.words.startsWith(">")) {
      this.#enter(depth);
      start.takeQuote();
      this.#open({ tag: QUOTE });
      return this.#stack.length;
    }
    const { marker } = start;
    const isInParagraph = this.#isInParagraph(depth);
    const mayInterrupt = marker && !marker.isEmpty && (marker.start ?? 1) === 1;
    if (!marker || (isInParagraph && !mayInterrupt) || RULE.test(start.words)) return null;
    this.#openItem(start, depth, marker);
    return this.#stack.length;
  }

  #openItem(start, depth, marker) {
    this.#endBlock();
    this.#closeTo(depth);
    const list = this.#stack.at(-1);
    if (list?.type === marker.type) this.#loosenAfterBlank(this.#stack.length - 1);
    else {
      this.#enter(depth);
      const tag = marker.start === undefined ? "ul" : "ol";
      this.#open({ tag, type: marker.type }, marker.start);
    }
    this.#isAfterBlank = false;
    this.#open({ tag: ITEM, indent: start.takeMarker(marker), hasBlocks: false });
  }

  #open(opened, start) {
    this.#stack.push(opened);
    this.#view.open(opened.tag, start);
  }

  /** A heading, a fence, a line, or the underline of a heading. */
  #beginLineBlock(start, depth) {
    const { words } = start;
    const line = words.trimEnd();
    const [heading, hashes] = HEADING.exec(words) ?? [];
    const fence = FENCE.exec(line);
    if (this.#isInParagraph(depth) && UNDERLINE.test(line)) {
      this.#endBlock();
      this.#view.underline(line[0] === "=" ? 1 : 2);
    } else if (hashes) {
      this.#enter(depth);
      this.#block = { kind: "heading", end: "" };
      this.#view.beginHeading(hashes.length);
      this.#addOutsideTable(words.slice(heading.length));
    } else if (fence) {
      const { indent } = start;
      const [, marks = fence[3], info = fence[4]] = fence;
      this.#enter(depth);
      this.#beginCode(info.trim().split(/\s/)[0], { marks, indent });
    } else if (RULE.test(line)) {
      this.#enter(depth);
      this.#view.addRule();
    } else return false;
    return true;
  }

  #beginCode(language, shape) {
    this.#block = { kind: "code", newlines: 0, isEmpty: true, ...shape };
    this.#view.beginCode(language);
  }

  /** Ends what does not go on before a block at that depth begins. */
  #enter(depth) {
    this.#endBlock();
    this.#closeTo(depth);
    const { type, tag } = this.#stack.at(-1) ?? {};
    if (type) this.#closeTo(this.#stack.length - 1);
    const last = this.#stack.length - 1;
    const item = this.#stack[last];
    if (item?.tag !== ITEM) return;
    if (item.hasBlocks) this.#loosenAfterBlank(last - 1);
    item.hasBlocks = true;
  }

  #loosenAfterBlank(depth) {
    if (!this.#isAfterBlank || this.#quotes(depth) !== this.#quotesAtBlank) return;
    this.#view.loosen(depth);
  }

  #closeTo(depth) {
    while (this.#stack.length > depth) {
      this.#stack.pop();
      this.#view.close();
    }
  }

  #endBlock() {
    if (!this.#block) return;
    if (this.#block.kind === "heading") this.#endHeading(this.#block.end.trimEnd());
    this.#block = null;
    this.#view.end();
  }

  #beginParagraph(words) {
    const item = this.#stack.at(-1);
    const task = item?.tag === ITEM && !item.isTask ? TASK.exec(words) : null;
    const closer = FORMULAS[words.slice(0, 2)] ?? "";
    if (task) item.isTask = true;
    this.#block = { kind: "paragraph", closer, text: "" };
    this.#view.beginParagraph(task ? task[1] !== " " : undefined);
    const skipped = closer ? words.slice(0, 2) : (task?.[0] ?? "");
    if (closer) this.#view.add(skipped);
    const shown = words.slice(skipped.length);
    if (task) this.#addOutsideTable(shown);
    else this.#addLine(shown);
  }

  /** The line of a heading, or of what follows a checkbox. */
  #addOutsideTable(words) {
    this.#addLine(words.replace(/^\|/, guard));
  }

  /** The line of a paragraph. */
  #addLine(words) {
    const number = MISLEADING_NUMBER.exec(words);
    if (this.#block.closer) this.#add(words);
    else if (number) this.#add(number[1] + guard(number[2]) + words.slice(number[0].length));
    else this.#add(words.replace(MISLEADING, guard));
  }

  #addCode(text) {
    const { newlines, isEmpty } = this.#block;
    if (!isEmpty && newlines) this.#view.add("\n".repeat(newlines));
    this.#block.newlines = 0;
    this.#block.isEmpty = false;
    if (text) this.#view.add(text);
  }

  /** More of a line. */
  #add(text) {
    const block = this.#block;
    if (!block) return;
    if (block.kind === "heading") return this.#addToHeading(block, text);
    if (block.closer) block.text += text;
    if (text) this.#view.add(text);
  }

  #endHeading(end) {
    const before = end.replace(HASHES, "");
    const shown = before.trimEnd() === before ? end : before.trimEnd();
    if (shown) this.#view.add(shown);
  }

  /** The end of a heading may be marks, which are not shown. */
  #addToHeading(block, text) {
    const all = block.end + text;
    block.end = MAY_END_HEADING.exec(all)?.[0] ?? "";
    const shown = all.slice(0, all.length - block.end.length);
    if (shown) this.#view.add(shown);
  }
}
