// The start of a line of Markdown: its blanks, marks and columns, as CommonMark counts them.

const TAB = 4; // columns
const FARTHEST = 4; // columns between the marker of an item and its text; more begin code
const MARKER = /^(?:([-+*])|(\d{1,9})([.)]))(?=[ \t]|$)/;

/** Reads a line from its start on. */
export class LineStart {
  #text;
  #at = 0;
  #column = 0;
  #pad = 0; // columns that are left of a tab

  constructor(text) {
    this.#text = text;
  }

  /** What is not read yet. */
  get rest() {
    return " ".repeat(this.#pad) + this.#text.slice(this.#at);
  }

  /** The same, without its blanks. */
  get words() {
    return this.#text.slice(this.#at).replace(/^[ \t]+/, "");
  }

  get isBlank() {
    return this.words.trim() === "";
  }

  /** Columns of blanks before the words. */
  get indent() {
    let column = this.#column;
    for (let at = this.#at; isBlank(this.#text[at]); at += 1) {
      column += this.#width(column, at);
    }
    return column - this.#column + this.#pad;
  }

  skip(columns) {
    let left = columns;
    while (left > 0 && (this.#pad || isBlank(this.#text[this.#at]))) {
      if (!this.#pad) this.#pad = this.#takeBlank();
      const taken = Math.min(left, this.#pad);
      this.#pad -= taken;
      left -= taken;
    }
  }

  /** Reads the mark of a quotation. Returns whether there is one. */
  takeQuote() {
    if (this.indent >= TAB || !this.words.startsWith(">")) return false;
    this.#take(1);
    this.skip(1);
    return true;
  }

  /** The marker of a list item: `type`, the `start` of a numbered list, and whether no
   *  words follow it. Null if there is none. */
  get marker() {
    const [whole, bullet, number, end] = MARKER.exec(this.words) ?? [];
    if (!whole || this.indent >= TAB) return null;
    const isEmpty = this.words.slice(whole.length).trim() === "";
    return { type: bullet ?? end, start: number && Number(number), length: whole.length, isEmpty };
  }

  /** Reads a marker. Returns how many columns the lines of its item are indented. */
  takeMarker({ length, isEmpty }) {
    const before = this.indent;
    this.#take(length);
    const blanks = isEmpty || this.indent > FARTHEST ? 1 : this.indent;
    this.skip(blanks);
    return before + length + blanks;
  }

  /** Reads characters behind the blanks. */
  #take(count) {
    this.skip(this.indent);
    this.#at += count;
    this.#column += count;
  }

  #takeBlank() {
    const width = this.#width(this.#column, this.#at);
    this.#at += 1;
    this.#column += width;
    return width;
  }

  #width(column, at) {
    return this.#text[at] === "\t" ? TAB - (column % TAB) : 1;
  }
}

const isBlank = (character) => character === " " || character === "\t";
