// Tables of streamed Markdown, in the form that the parser knows.
//
// For the parser a row begins and ends with a bar. Here rows get the bars that they lack.
// Only the line below shows whether a line without a first bar is a table's head: it is
// reported then.

const DELIMITER = /^:?-+:?$/;
const OPEN_DELIMITERS = /^[-:|][-:| \t]*$/;
const LAST_BAR = /(?<!\\)\|$/;
const PIECE = /[^\n]*\n|[^\n]+/g;

/** The cells of a row. */
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(LAST_BAR, "");
  return inner.split(/(?<!\\)\|/);
}

/** Whether a line is the second of a table. Cell by cell: one expression for the whole
 *  line takes minutes where a model repeats blanks without end. */
const isDelimiterRow = (line) => cells(line).every((cell) => DELIMITER.test(cell.trim()));

/** `"left"`, `"right"`, `"center"` or `""`: where each column of the row wants its text. */
const sidesIn = (line) => cells(line).map((cell) => sideIn(cell.trim()));

function sideIn(delimiter) {
  if (!delimiter.endsWith(":")) return delimiter.startsWith(":") ? "left" : "";
  return delimiter.startsWith(":") ? "center" : "right";
}

/** Whether a line below one with a first bar makes both a table; null if it may yet. */
const isSecondLine = (line, isWhole) =>
  !isWhole && OPEN_DELIMITERS.test(line) ? null : isDelimiterRow(line);

/** The line up to its last bar, which it gets if it has none. */
function closed(line) {
  const row = line.trimEnd();
  return LAST_BAR.test(row) ? row : `${row}|`;
}

/** Takes the growing text of a paragraph, and yields as much of it as later text cannot
 *  change. */
export class TableRows {
  #line = ""; // that is not whole yet
  #given = 0; // characters of it that were yielded
  #isRow = null; // whether the line is one; null while that is uncertain
  #isBelowHead = false;
  #isInBody = false; // of a table
  #isAmongBars = false; // whether lines with a first bar were no rows
  #head = ""; // the line above, if it may be a head without a first bar

  /** Pieces `{ text, isHead, sides }` of `fresh`, which follows what was read before. The text
   *  before a head ends with the same head, as it was written; `sides` are those of the
   *  columns, once they are known. */
  *push(fresh, isOver = false) {
    for (const piece of fresh.match(PIECE) ?? []) {
      this.#line += piece;
      const isWhole = piece.endsWith("\n");
      yield* this.#certain(isWhole);
      if (isWhole) this.#endLine();
    }
    if (isOver && this.#line) yield* this.#certain(true);
  }

  *#certain(isWhole) {
    if (isWhole && this.#isHeadFound()) {
      const delimiters = Array(cells(this.#line).length).fill("---").join("|");
      yield { text: `|${closed(this.#head)}\n|${delimiters}|\n`, isHead: true, sides: sidesIn(this.#line) };
      this.#isBelowHead = true;
      return;
    }
    this.#isRow ??= this.#recognised(isWhole);
    if (this.#isRow === null) return;
    const text = this.#isRow ? this.#rowPiece() : this.#textPiece();
    this.#given = this.#isRow ? this.#line.trimEnd().length : this.#line.length;
    const isSecond = isWhole && this.#isBelowHead && isDelimiterRow(this.#line);
    if (text) yield { text, isHead: false, sides: isSecond ? sidesIn(this.#line) : null };
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
    if (!isWhole && this.#head && OPEN_DELIMITERS.test(line)) return null;
    if (this.#isBelowHead) return isSecondLine(line, isWhole);
    if (line.startsWith("|")) return this.#isInBody || !this.#isAmongBars;
    return this.#isInBody;
  }

  /** What is new of a row, without blanks before its end. */
  #rowPiece() {
    const line = this.#line;
    const first = this.#given || line.startsWith("|") ? "" : "|";
    const row = line.endsWith("\n") ? `${closed(line)}\n` : line.trimEnd();
    return first + row.slice(this.#given);
  }

  /** What is new of another line. For the parser one with a first bar begins a table. */
  #textPiece() {
    const text = this.#line.slice(this.#given);
    return !this.#given && text.startsWith("|") ? `\\${text}` : text;
  }

  #endLine() {
    const line = this.#line;
    const isDelimiters = this.#isBelowHead && isDelimiterRow(line);
    this.#isAmongBars ||= !this.#isRow && !isDelimiters && line.startsWith("|");
    this.#isInBody = isDelimiters || (this.#isInBody && this.#isRow);
    this.#isBelowHead = this.#isRow && !this.#isInBody && !isDelimiters;
    const mayBeHead = !this.#isRow && !isDelimiters && cells(line).length > 1;
    this.#head = mayBeHead ? line.trimEnd() : "";
    this.#line = "";
    this.#given = 0;
    this.#isRow = null;
  }
}
