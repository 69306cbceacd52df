// Protects formulas in the paragraphs of streamed Markdown from the parser.
//
// The parser would interpret the backslashes and underscores of LaTeX. So all characters
// of a formula are replaced by characters without a meaning in Markdown, and restored
// where the text is shown (`unguarded`). Addresses between angle brackets, which the parser
// does not know, become links that it knows. The rules are those of the server
// (conversations/pages/markdown_math.py); tests/js/math_cases.json tests both.

import { addressLength } from "./reading/addresses.js";

const CLOSERS = { "\\(": "\\)", "\\[": "\\]", $$: "$$" };
const DOLLARS = /\$(?=[^\s$])(?:\\.|[^$`\n\\])*(?<=\S)\$(?!\d)/y;
const BLANK = /\n[ \t]*\n/g;
const LONGEST = 4000; // characters of a formula that are waited for
const LONGEST_INLINE = 200; // of one in single dollars, or of code in a line
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]+)>/iy;
const BREAK = /<br *\/?>/iy;
const MAY_BE_ANGLE = /^<(?:[a-z]{0,6}|br *\/?|(?:https?|mailto):[^\s<>]*)$/i;
/** An address behind a letter of a script without blanks, or behind a mark. Most marks of
 *  ASCII may be in an address that goes on. */
const BEFORE_ADDRESS = "(?<=(?![!-~])\\p{P}|[\\p{Lo}\"'(])(?<!\\]\\()";
const ADDRESS_START = new RegExp(`${BEFORE_ADDRESS}https?://`, "gu");
const ADDRESS = /https?:\/\/[^\s<|`\\]*/uy;
const MAY_BE_ADDRESS = new RegExp(`${BEFORE_ADDRESS}h(?:t(?:t(?:p(?:s?(?::/?)?)?)?)?)?$`, "gu");
const LONGEST_ADDRESS = 2000; // characters that are waited for
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

const linkTo = (address) => `[${guard(address)}](${guard(address)})`;

/** Reads a growing text and returns it guarded, as far as it is certain. */
export class FormulaGuard {
  #text = "";
  #at = 0; // up to where the text has been given
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
    switch (this.#text[this.#at]) {
      case "`":
        return this.#code();
      case "\\":
        return this.#backslash();
      case "$":
        return this.#dollars();
      case "<":
        return this.#angle();
      default:
        return this.#plain();
    }
  }

  /** Reads up to the next character that may begin something. */
  #plain() {
    const rest = /[^`\\$<\n]*\n?/y;
    rest.lastIndex = this.#at;
    const end = this.#at + rest.exec(this.#text)[0].length;
    const address = this.#find(ADDRESS_START, end);
    if (address === this.#at) return this.#address();
    const isCertain = this.#isOver || end < this.#text.length;
    const open = isCertain ? end : end - this.#openBefore(end);
    const until = Math.min(open, address);
    return until > this.#at ? this.#give(until - this.#at, this.#words(until)) : null;
  }

  /** An address that the parser does not find, as no blank is before it. */
  #address() {
    ADDRESS.lastIndex = this.#at;
    const [found] = ADDRESS.exec(this.#text);
    const isAtEnd = this.#at + found.length === this.#text.length;
    if (isAtEnd && !this.#isOver && found.length < LONGEST_ADDRESS) return null;
    const length = addressLength(found);
    return this.#give(length, linkTo(found.slice(0, length)));
  }

  /** How many characters may turn out to be the start of an address, or underscores within
   *  a word. */
  #openBefore(end) {
    return end - this.#find(MAY_BE_ADDRESS, end) || this.#underscoresBefore(end);
  }

  /** Where the expression matches before `end`, which is returned if it does not. */
  #find(expression, end) {
    const begin = Math.max(0, this.#at - 2); // what the expression looks back at
    expression.lastIndex = this.#at - begin;
    const found = expression.exec(this.#text.slice(begin, end));
    return found ? begin + found.index : end;
  }

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

  /** An address between angle brackets becomes a link, as the parser knows them. What
   *  begins neither one nor a break of a line is text. */
  #angle() {
    BREAK.lastIndex = AUTOLINK.lastIndex = this.#at;
    const [breaking] = BREAK.exec(this.#text) ?? [];
    if (breaking) return this.#give(breaking.length, "<br>");
    const [whole, address] = AUTOLINK.exec(this.#text) ?? [];
    const isTarget = this.#text.endsWith("](", this.#at); // of words in brackets
    if (whole) return this.#give(whole.length, isTarget ? guard(address) : linkTo(address));
    const rest = this.#text.slice(this.#at, this.#at + LONGEST_ADDRESS);
    const isCertain = this.#isOver || rest.length === LONGEST_ADDRESS;
    return isCertain || !MAY_BE_ANGLE.test(rest) ? this.#give(1, guard("<")) : null;
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
