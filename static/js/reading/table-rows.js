// Tables of streamed Markdown, in the form that the parser knows.
//
// For the parser a row begins and ends with a bar. Here rows get the bars that they lack.
// Only the line below shows whether a line without a first bar is a table's head: it is
// reported then. The parser ends a list before a table, and begins a quotation in each row
// of one; so rows in lists and quotations are given without what stands before them, and a
// table is shown below its list or quotation until the answer ends.

import { guard } from "../math.js";

const FENCE = /^[\s>]*```/;
const PREFIX = /^[\s>]*/; // of a line in a list or a quotation
const ROW = /^[\s>]*\|/;
const DELIMITER = /^:?-+:?$/;
const OPEN_DELIMITERS = /^[-:|][-:| \t]*$/;
const ITEM = /^\s*([-*+]|\d{1,9}[.)])\s/;
const CODE = /^(\t| {4})/; // where it is in no list
const BLOCK = /^(\s|>|[-*+]\s|\d{1,9}[.)]\s|#{1,6}\s|```|([-*_])\2{2,}\s*$)/;
const OPEN_BLOCK = /^([-*_]+|\+|#{1,6}|\d{1,9}[.)]?|`{1,2})$/; // may begin one
const LAST_BAR = /(?<!\\)\|$/;
const PIECE = /[^\n]*\n|[^\n]+/g;

const isBlank = (line) => line.trim() === "";

const prefixOf = (line) => PREFIX.exec(line)[0];
const isOpenQuote = (line) => line.includes(">") && prefixOf(line) === line;

/** The cells of a row. */
function cells(line) {
  const inner = line.slice(prefixOf(line).length).trim().replace(/^\|/, "").replace(LAST_BAR, "");
  return inner.split(/(?<!\\)\|/);
}

/** Whether a line is the second of a table. Cell by cell: one expression for the whole
 *  line takes minutes where a model repeats blanks without end. */
const isDelimiterRow = (line) => cells(line).every((cell) => DELIMITER.test(cell.trim()));

/** Whether a line below one with a first bar makes both a table; null if it may yet. */
const isSecondLine = (line, isWhole) =>
  !isWhole && OPEN_DELIMITERS.test(line) ? null : isDelimiterRow(line);

/** The line up to its last bar, which it gets if it has none. */
function closed(line) {
  const row = line.trimEnd();
  return LAST_BAR.test(row) ? row : `${row}|`;
}

/** Takes a growing text, and yields as much of it as later text cannot change. */
export class TableRows {
  #line = ""; // that is not whole yet
  #given = 0; // characters of it that were yielded
  #isRow = null; // whether the line is one; null while that is uncertain
  #isBelowHead = false;
  #isInBody = false; // of a table
  #prefix = ""; // of that table's lines
  #isAmongBars = false; // whether the block has lines with a first bar that are no rows
  #isQuote = false; // whether the line above is one of a quotation
  #head = ""; // the line above, if it may be a head without a first bar
  #isInItem = false; // whether the block is an item of a list
  #isInList = false; // whether an indented line may belong to an item
  #isAfterText = false; // whether the line above is one of a paragraph or a table
  #isFenced = false;
  #isQuotedFence = false; // which ends with its quotation

  /** Pieces `{ text, isHead }` of `fresh`, which follows what was read before. The text
   *  before a head ends with the same head, as it was written. */
  *push(fresh, isOver = false) {
    for (const piece of fresh.match(PIECE) ?? []) {
      this.#line += piece;
      const isWhole = piece.endsWith("\n");
      yield* this.#certain(isWhole);
      if (isWhole) this.#endLine();
    }
    if (isOver) yield* this.#certain(true);
  }

  *#certain(isWhole) {
    if (isWhole && this.#isHeadFound()) {
      const delimiters = Array(cells(this.#line).length).fill("---").join("|");
      const head = closed(this.#head.slice(prefixOf(this.#head).length));
      yield { text: `|${head}\n|${delimiters}|\n`, isHead: true };
      this.#isBelowHead = true;
      return;
    }
    this.#isRow ??= this.#recognised(isWhole);
    if (this.#isRow === null) return;
    const text = this.#isRow ? this.#rowPiece() : this.#textPiece();
    this.#given = this.#isRow ? this.#line.trimEnd().length : this.#line.length;
    if (text) yield { text, isHead: false };
  }

  /** Whether the line lies below a head without a first bar. */
  #isHeadFound() {
    if (!this.#head || this.#given) return false;
    if (!isDelimiterRow(this.#line)) return false;
    return cells(this.#line).length === cells(this.#head).length;
  }

  /** Whether the line is a row; null if what follows may still change it. */
  #recognised(isWhole) {
    const line = this.#line;
    if (this.#isQuotedFence) {
      if (!isWhole && isBlank(line)) return null;
      if (!line.trimStart().startsWith(">")) this.#isFenced = this.#isQuotedFence = false;
    }
    if (this.#isFenced) return false;
    if (isBlank(line)) return isWhole ? false : null;
    if (this.#isIndentedCode()) return false;
    if (!isWhole && isOpenQuote(line)) return null;
    const rest = line.slice(prefixOf(line).length);
    if (!isWhole && this.#head && OPEN_DELIMITERS.test(rest)) return null;
    if (this.#isBelowHead) return isSecondLine(rest, isWhole);
    if (ROW.test(line)) return this.#isInBody || !this.#isAmongBars;
    if (!this.#isInBody || !line.startsWith(this.#prefix)) return false;
    const row = line.slice(this.#prefix.length);
    if (!isWhole && OPEN_BLOCK.test(row)) return null;
    return !BLOCK.test(row);
  }

  #isIndentedCode() {
    return CODE.test(this.#line) && !this.#isInList && !this.#isAfterText;
  }

  /** What is new of a row, without blanks before its end. */
  #rowPiece() {
    const line = this.#line;
    const first = this.#given || ROW.test(line) ? "" : "|";
    const end = this.#isQuote && !this.#isInBody && !this.#given ? "\n" : "";
    const row = line.endsWith("\n") ? `${closed(line)}\n` : line.trimEnd();
    return end + first + row.slice(this.#given || prefixOf(line).length);
  }

  /** What is new of another line. For the parser a table ends at a blank line only, and
   *  an indented line with a first bar begins one. */
  #textPiece() {
    const line = this.#line;
    if (this.#given || isBlank(line)) return line.slice(this.#given);
    if (this.#isFenced) return line;
    if (this.#isIndentedCode()) return ROW.test(line) ? line.replace("|", guard) : line;
    if (ROW.test(line)) return `\\${line.slice(prefixOf(line).length)}`;
    return (this.#isInBody ? "\n" : "") + line;
  }

  #endLine() {
    const line = this.#line;
    const isCode = this.#isFenced || this.#isIndentedCode();
    const isText = !isCode && !this.#isRow && !isBlank(line);
    if (isText && ITEM.test(line)) this.#isInList = true;
    else if (!isCode && !this.#isAfterText && !/^\s/.test(line)) this.#isInList = false;
    this.#isAfterText = isText || this.#isRow;
    this.#isInItem = isText && (this.#isInItem || ITEM.test(line));
    this.#isQuote = isText && line.trimStart().startsWith(">");
    const isDelimiters = this.#isBelowHead && isDelimiterRow(line);
    if (isDelimiters) this.#prefix = prefixOf(line);
    const isBar = isText && ROW.test(line);
    this.#isAmongBars = isText && (this.#isAmongBars || isBar);
    this.#isInBody = isDelimiters || (this.#isInBody && this.#isRow);
    this.#isBelowHead = this.#isRow && !this.#isInBody && !isDelimiters;
    this.#head = isText && !isDelimiters && this.#mayBeHead() ? line.trimEnd() : "";
    if (FENCE.test(line)) {
      this.#isFenced = !this.#isFenced;
      this.#isQuotedFence = this.#isFenced && line.trimStart().startsWith(">");
    }
    this.#line = "";
    this.#given = 0;
    this.#isRow = null;
  }

  #mayBeHead() {
    const line = this.#line;
    const isCode = CODE.test(line) && !this.#isInItem;
    const rest = line.slice(prefixOf(line).length);
    return !isCode && !BLOCK.test(rest) && cells(line).length > 1;
  }
}
