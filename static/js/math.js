// Protects formulas in streamed Markdown from the parser.
//
// The parser would interpret the backslashes and underscores of LaTeX. So all characters
// of a formula are replaced by characters without a meaning in Markdown, and restored
// where the text is shown (`unguarded`). The rules are those of the server
// (conversations/pages/markdown_math.py); tests/js/math_cases.json tests both.

const CLOSERS = { "\\(": "\\)", "\\[": "\\]", $$: "$$" };
const DOLLARS = /\$(?=[^\s$])(?:\\.|[^$`\n\\])*(?<=\S)\$(?!\d)/y;
/** Up to three spaces, then list markers, whose item may begin with code. */
const BEFORE = " {0,3}(?:(?:[-+*]|\\d{1,9}[.)]) {1,4}){0,8}";
const FENCE = new RegExp(`^${BEFORE}(\`{3,}(?!.*\`)|~{3,})`);
const MAY_BE_FENCE = new RegExp(`^${BEFORE}(?:[-+*]|\\d{1,9}[.)]?|\`{0,2}|~{0,2})$`);
const CLOSING = /^( *)(`{3,}|~{3,})[ \t\r]*$/;
const MAY_CLOSE = /^ *(`*|~*)[ \t]*$/;
const ITEM = /^ *(?:[-+*]|\d{1,9}[.)])(?: |$)/; // the first line of a list item
const MOST_LINES = 200; // of an item before its code
const BLANK = /\n[ \t]*\n/g;
const LONGEST = 4000; // characters of a formula that are waited for
const LONGEST_INLINE = 200; // of one in single dollars, or of code in a line
/** Underscores within a word, such as `snake_case`, which the parser takes for emphasis. */
const IN_WORD = /(?<=[\p{L}\p{N}])_+(?=[\p{L}\p{N}])/gu;
const LONGEST_IN_WORD = 20; // underscores that are waited for
const GUARD = 0xf100; // of the private use area: 128 characters for those of ASCII

/** Around each formula, where the text is given; `unguarded` removes them. */
export const FORMULA_BEGIN = "\uf180";
export const FORMULA_END = "\uf181";

/** The text in characters without a meaning. */
export const guard = (text) =>
  text.replace(/[\n!-\/:-@[-`{-~]/g, (c) => String.fromCharCode(GUARD + c.charCodeAt(0)));

/** The original text. */
export const unguarded = (text) =>
  text
    .replace(/[\uf180\uf181]/g, "")
    .replace(/[\uf100-\uf17f]/g, (c) => String.fromCharCode(c.charCodeAt(0) - GUARD));

/** Reads a growing text and returns it guarded, as far as it is certain. */
export class FormulaGuard {
  #text = "";
  #at = 0; // up to where the text has been given
  #fence = ""; // that is open
  #column = 0; // of the fence's marks
  #indent = 0; // which the fence and its lines lose
  #isOver = false;

  /** The part of the text that is certain now; `text` is the whole text so far. */
  push(text, isOver = false) {
    this.#text = text;
    this.#isOver = isOver;
    const pieces = [];
    for (let piece; (piece = this.#next()) !== null; ) pieces.push(piece);
    return pieces.join("");
  }

  /** The next piece; null if following text may still change it. */
  #next() {
    if (this.#at >= this.#text.length) return null;
    if (this.#at === 0 || this.#text[this.#at - 1] === "\n") {
      const line = this.#fenceLine();
      if (line !== undefined) return line;
    }
    if (this.#fence) return this.#line();
    switch (this.#text[this.#at]) {
      case "`":
        return this.#code();
      case "\\":
        return this.#backslash();
      case "$":
        return this.#dollars();
      default:
        return this.#plain();
    }
  }

  /** Reads up to the next character that may begin something. */
  #plain() {
    const rest = /[^`\\$\n]*\n?/y;
    rest.lastIndex = this.#at;
    const end = this.#at + rest.exec(this.#text)[0].length;
    const isCertain = this.#isOver || end < this.#text.length;
    const until = isCertain ? end : end - this.#underscoresBefore(end);
    return until > this.#at ? this.#give(until - this.#at, this.#words(until)) : null;
  }

  /** How many underscores may turn out to be within a word. */
  #underscoresBefore(end) {
    let first = end;
    while (first > this.#at && this.#text[first - 1] === "_") first -= 1;
    return end - first > LONGEST_IN_WORD ? 0 : end - first;
  }

  #words(end) {
    const before = this.#text.slice(Math.max(0, this.#at - 2), this.#at);
    const text = before + this.#text.slice(this.#at, end);
    return text.replace(IN_WORD, guard).slice(before.length);
  }

  /** A line that opens or closes a fence, or may do so; undefined if it does neither. */
  #fenceLine() {
    const end = this.#text.indexOf("\n", this.#at);
    const line = this.#text.slice(this.#at, end === -1 ? undefined : end);
    const isWhole = end !== -1 || this.#isOver;
    if (this.#fence) return this.#closingLine(line, isWhole);
    if (!isWhole && MAY_BE_FENCE.test(line)) return null;
    const marks = FENCE.exec(line)?.[1];
    if (!marks) return undefined;
    if (!isWhole) return null;
    this.#fence = marks;
    this.#column = line.indexOf(marks);
    const isAlone = line.trimStart().startsWith(marks); // not behind a list marker
    this.#indent = isAlone && !this.#continuesItem() ? this.#column : 0;
    return this.#lineFrom(line, this.#indent);
  }

  /** The same, inside a fence. */
  #closingLine(line, isWhole) {
    if (!isWhole) return MAY_CLOSE.test(line) ? null : undefined;
    const [, blanks, marks] = CLOSING.exec(line) ?? [];
    if (!marks?.startsWith(this.#fence) || blanks.length > this.#column + 3) return undefined;
    this.#fence = "";
    return this.#lineFrom(line, this.#indent && blanks.length);
  }

  /** The rest of a line, with its end. */
  #lineFrom(line, column) {
    const end = Math.min(this.#at + line.length + 1, this.#text.length);
    return this.#give(end - this.#at, this.#text.slice(this.#at + column, end));
  }

  /** Whether the line continues a list item, in which the parser keeps the code. */
  #continuesItem() {
    let end = this.#at - 1; // of the line before
    for (let lines = 0; end > 0 && lines < MOST_LINES; lines++) {
      const begin = this.#text.lastIndexOf("\n", end - 1) + 1;
      const line = this.#text.slice(begin, end);
      if (line.trim() === "" || ITEM.test(line)) return line.trim() !== "";
      end = begin - 1;
    }
    return false;
  }

  /** A line inside a fence, in which no character has a meaning. */
  #line() {
    const end = this.#text.indexOf("\n", this.#at);
    const line = this.#text.slice(this.#at, end === -1 ? undefined : end + 1);
    if (!this.#indent || this.#text[this.#at - 1] !== "\n") return this.#take(line.length);
    const blanks = Math.min(/^ */.exec(line)[0].length, this.#indent);
    if (blanks === line.length && !this.#isOver) return null;
    return this.#give(line.length, line.slice(blanks));
  }

  /** Inline code, which contains no formulas. */
  #code() {
    const run = /`+/y;
    run.lastIndex = this.#at;
    const marks = run.exec(this.#text)[0];
    const from = this.#at + marks.length;
    if (from === this.#text.length && !this.#isOver) return null;
    const until = this.#paragraphEnd(LONGEST_INLINE);
    const closing = new RegExp(`(?<!\`)${marks}(?!\`)`, "g");
    closing.lastIndex = from;
    const found = closing.exec(this.#text.slice(0, until.at));
    if (found) return this.#take(found.index + marks.length - this.#at);
    return until.isCertain ? this.#take(marks.length) : null;
  }

  #backslash() {
    const pair = this.#text.slice(this.#at, this.#at + 2);
    if (pair.length < 2) return this.#isOver ? this.#take(1) : null;
    if (!(pair in CLOSERS)) return this.#take(2);
    return this.#delimited(pair, pair[1]);
  }

  #dollars() {
    const pair = this.#text.slice(this.#at, this.#at + 2);
    if (pair.length < 2 && !this.#isOver) return null;
    if (pair === "$$") return this.#delimited("$$", guard("$$"));
    const before = this.#text.slice(Math.max(0, this.#at - 2), this.#at);
    if (/[\p{L}\p{N}]$/u.test(before)) return this.#give(1, guard("$"));
    DOLLARS.lastIndex = this.#at;
    const found = DOLLARS.exec(this.#text);
    const end = found ? this.#at + found[0].length : -1;
    if (found && (end < this.#text.length || this.#isOver)) return this.#formula(end);
    const line = this.#text.slice(this.#at, this.#at + LONGEST_INLINE);
    const isCertain =
      this.#isOver || line.includes("\n") || line.length === LONGEST_INLINE;
    const isOpen = /^\$[^\s$`]/.test(line) && !/^\$(\\.|[^$`\\])*(`|\$.)/.test(line);
    return isCertain || !isOpen ? this.#give(1, guard("$")) : null;
  }

  /** A formula between two-character delimiters; `literal` if there is none. */
  #delimited(opener, literal) {
    const closer = CLOSERS[opener];
    const until = this.#paragraphEnd(LONGEST);
    const found = this.#text.slice(0, until.at).indexOf(closer, this.#at + 2);
    if (found > this.#at + 2) return this.#formula(found + 2);
    if (found === -1 && !until.isCertain) return null;
    return this.#give(2, literal);
  }

  /** The end of the paragraph, at most `most` characters on, or the end of the text. */
  #paragraphEnd(most) {
    const end = Math.min(this.#at + most, this.#text.length);
    BLANK.lastIndex = this.#at;
    const blank = BLANK.exec(this.#text.slice(0, end));
    if (blank) return { at: blank.index, isCertain: true };
    return { at: end, isCertain: this.#isOver || end === this.#at + most };
  }

  #formula(end) {
    const formula = guard(this.#text.slice(this.#at, end));
    return this.#give(end - this.#at, FORMULA_BEGIN + formula + FORMULA_END);
  }

  #take(length) {
    return this.#give(length, this.#text.slice(this.#at, this.#at + length));
  }

  #give(length, piece) {
    this.#at += length;
    return piece;
  }
}
