// Tables of streamed Markdown, in the form that the parser knows.
//
// For the parser a row begins and ends with a bar. Here rows get the bars that they lack.
// Only the line below shows whether a line without a first bar is a table's head: it is
// reported then. In lists and quotations rows without a first bar stay text.

const FENCE = /^\s*```/;
const ROW = /^\s*\|/;
const DELIMITER = /^:?-+:?$/;
const OPEN_DELIMITERS = /^[-:|][-:| \t]*$/;
const NESTED = /^(\s|>|[-*+]\s|\d{1,9}[.)]\s)/;
const BLOCK = /^(\s|>|[-*+]\s|\d{1,9}[.)]\s|#{1,6}\s|```|([-*_])\2{2,}\s*$)/;
const OPEN_BLOCK = /^([-*_]+|\+|#{1,6}|\d{1,9}[.)]?|`{1,2})$/; // may begin one
const LAST_BAR = /(?<!\\)\|$/;
const PIECE = /[^\n]*\n|[^\n]+/g;

const isBlank = (line) => line.trim() === "";

/** The cells of a row. */
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(LAST_BAR, "");
  return inner.split(/(?<!\\)\|/);
}

/** Whether a line is the second of a table. Cell by cell: one expression for the whole
 *  line takes minutes where a model repeats blanks without end. */
const isDelimiterRow = (line) => cells(line).every((cell) => DELIMITER.test(cell.trim()));

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
  #isInBody = false; // of a table at the top level
  #head = ""; // the line above, if it may be a head without a first bar
  #isNested = false; // whether the block is a list or a quotation
  #isFenced = false;

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
      yield { text: `|${closed(this.#head)}\n|${delimiters}|\n`, isHead: true };
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
    if (this.#isFenced) return false;
    if (isBlank(line)) return isWhole ? false : null;
    if (!isWhole && this.#head && OPEN_DELIMITERS.test(line)) return null;
    if (ROW.test(line)) return true;
    if (!this.#isInBody) return false;
    if (!isWhole && OPEN_BLOCK.test(line)) return null;
    return !BLOCK.test(line);
  }

  /** What is new of a row, without blanks before its end. */
  #rowPiece() {
    const line = this.#line;
    const first = this.#given || ROW.test(line) ? "" : "|";
    const row = line.endsWith("\n") ? `${closed(line)}\n` : line.trimEnd();
    return first + row.slice(this.#given);
  }

  /** What is new of another line. For the parser a table ends at a blank line only. */
  #textPiece() {
    const isFirst = this.#isInBody && !this.#given && !isBlank(this.#line);
    return (isFirst ? "\n" : "") + this.#line.slice(this.#given);
  }

  #endLine() {
    const line = this.#line;
    const isText = !this.#isFenced && !this.#isRow && !isBlank(line);
    if (!isText) this.#isNested = false;
    else this.#isNested ||= NESTED.test(line);
    const isDelimiters = this.#isBelowHead && isDelimiterRow(line);
    this.#isInBody = isDelimiters ? !/^\s/.test(line) : this.#isInBody && this.#isRow;
    this.#isBelowHead = this.#isRow && !this.#isInBody && !isDelimiters;
    const mayBeHead = isText && !isDelimiters && !this.#isNested && !BLOCK.test(line);
    this.#head = mayBeHead && cells(line).length > 1 ? line.trimEnd() : "";
    if (FENCE.test(line)) this.#isFenced = !this.#isFenced;
    this.#line = "";
    this.#given = 0;
    this.#isRow = null;
  }
}
