// Highlights code line by line while it streams.
//
// Rough on purpose: comments, strings, numbers and keywords of the common languages, with
// Pygments' classes. At the end of the turn the server's highlighting replaces this one.

const LONGEST_LINE = 500; // characters
const MOST = 10_000; // characters of a block, as conversations/pages/markdown.py has it

const C = { line: "//", blocks: [["/*", "*/"]] };
const HASH = { line: "#", blocks: [] };
const PYTHON = { line: "#", blocks: [['"""', '"""'], ["'''", "'''"]] };
const SQL = { line: "--", blocks: [["/*", "*/"]], ignoresCase: true };
const CSS = { blocks: [["/*", "*/"]] };

const FAMILIES = new Map([
  ...entries(C, "c c++ cpp cs csharp c# dart go golang java javascript js json jsx kotlin"),
  ...entries(C, "php rust rs scala swift ts tsx typescript"),
  ...entries(HASH, "bash dockerfile elixir make makefile perl r rb ruby sh shell toml"),
  ...entries(HASH, "yaml yml zsh"),
  ...entries(PYTHON, "py python python3"),
  ...entries(SQL, "mysql postgresql sql sqlite"),
  ...entries(CSS, "css less scss"),
]);

const KEYWORDS = new Set(
  `abstract and as assert async await break case catch class const continue def default
  defer del delete do done elif else end enum esac except export extends extern final
  finally fi fn for foreach from func function global go if impl implements import in
  instanceof interface is lambda let loop match mod module mut namespace new not null of
  or override package pass private protected pub public raise return self static struct
  super switch then this throw throws trait try type typedef typeof union unless until
  use using var void volatile where while with yield True False None true false nil
  undefined int float double bool boolean char string str select insert update into
  values create table alter drop join left right inner outer on group by order having
  limit offset distinct set primary key foreign references begin commit`.split(/\s+/),
);

const PIECE =
  /(?<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)|(?<number>\b(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\b)|(?<word>[A-Za-z_$][\w$]*)/y;

/** Reads the lines of a block in their order. */
export class Highlighter {
  #family;
  #closer = ""; // of the comment or text over several lines that is open
  #kind = "";
  #size = 0;

  constructor(language) {
    this.#family = FAMILIES.get(language.toLowerCase());
  }

  get isKnown() {
    return this.#family !== undefined;
  }

  /** The line as `[class, text]`; the class is "" where nothing is highlighted. */
  tokens(line) {
    this.#size += line.length;
    if (line.length > LONGEST_LINE || this.#size > MOST) return [["", line]];
    const found = [];
    let at = 0;
    while (at < line.length) {
      const [kind, length] = this.#next(line, at);
      const text = line.slice(at, at + length);
      if (found.at(-1)?.[0] === kind) found.at(-1)[1] += text;
      else found.push([kind, text]);
      at += length;
    }
    return found;
  }

  #next(line, at) {
    if (this.#closer) return this.#rest(line, at, 0);
    const { line: comment, blocks, ignoresCase } = this.#family;
    for (const [opener, closer] of blocks) {
      if (!line.startsWith(opener, at)) continue;
      this.#closer = closer;
      this.#kind = opener === "/*" ? "cm" : "s2";
      return this.#rest(line, at, opener.length);
    }
    if (comment && line.startsWith(comment, at)) return ["c1", line.length - at];
    PIECE.lastIndex = at;
    const { groups } = PIECE.exec(line) ?? {};
    if (!groups) return ["", 1];
    if (groups.string) return ["s2", groups.string.length];
    if (groups.number) return ["mi", groups.number.length];
    const word = ignoresCase ? groups.word.toLowerCase() : groups.word;
    return [KEYWORDS.has(word) ? "k" : "", word.length];
  }

  /** Up to the end of what is open, or of the line. */
  #rest(line, at, opened) {
    const end = line.indexOf(this.#closer, at + opened);
    const kind = this.#kind;
    if (end === -1) return [kind, line.length - at];
    const length = end + this.#closer.length - at;
    this.#closer = "";
    return [kind, length];
  }
}

function entries(family, names) {
  return names.split(" ").map((name) => [name, family]);
}
