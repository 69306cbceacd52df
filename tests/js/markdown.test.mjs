// Text that streams, where the parser of the pages would take too long.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

class Text {
  nodeType = 3;
  constructor(data) {
    this.data = data;
  }
  toString() {
    return this.data;
  }
  appendData(more) {
    this.data += more;
  }
  get textContent() {
    return this.data;
  }
  replaceWith(...added) {
    Element.prototype.replaceWith.apply(this, added);
  }
}

class Element {
  constructor(tag) {
    this.tag = tag;
    this.children = [];
    this.dataset = {};
    this.style = {};
    this.classes = new Set();
    const { classes } = this;
    this.classList = { add: (name) => classes.add(name), contains: (name) => classes.has(name) };
  }
  getBoundingClientRect() {
    return { width: 100 };
  }
  prepend(first) {
    this.children.unshift(first);
    first.parent = this;
  }
  cloneNode() {
    const copy = new Element(this.tag);
    copy.append(...this.children.map((each) => each.cloneNode()));
    return copy;
  }
  get lastChild() {
    return this.children.at(-1);
  }
  get childNodes() {
    return this.children;
  }
  get parentElement() {
    return this.parent;
  }
  get tagName() {
    return this.tag.toUpperCase();
  }
  get lastElementChild() {
    return this.children.findLast((each) => each instanceof Element);
  }
  get childElementCount() {
    return this.children.filter((each) => each instanceof Element).length;
  }
  setAttribute(name, value) {
    this[name] = value;
  }
  matches() {
    return this.className === "math" && this.dataset.whole === undefined;
  }
  isSelected(by) {
    return by[0] === "." ? this.className?.split(" ").includes(by.slice(1)) : this.tag === by;
  }
  closest(by) {
    return this.isSelected(by) ? this : (this.parent?.closest(by) ?? null);
  }
  querySelector(by) {
    const inside = this.children.filter((each) => each instanceof Element);
    for (const each of inside) {
      const found = each.isSelected(by) ? each : each.querySelector(by);
      if (found) return found;
    }
    return null;
  }
  append(...added) {
    for (const each of added) if (typeof each === "object") each.parent = this;
    this.children.push(...added);
  }
  appendChild(child) {
    this.append(child);
    return child;
  }
  replaceWith(...added) {
    const { parent } = this;
    const after = parent.children.splice(parent.children.indexOf(this));
    parent.append(...added, ...after.slice(1));
  }
  removeChild(child) {
    this.children.splice(this.children.indexOf(child), 1);
  }
  remove() {
    this.replaceWith();
  }
  replaceChildren(...children) {
    this.children = children;
  }
  set textContent(text) {
    this.children = [text];
  }
  get textContent() {
    return this.children.map((each) => each.textContent ?? String(each)).join("");
  }
}

globalThis.Node = { TEXT_NODE: 3 };
let made = 0; // elements
globalThis.document = {
  createElement: (tag) => {
    made += 1;
    return new Element(tag);
  },
  createTextNode: (text) => new Text(text),
};
const { MarkdownStream } = await import("../../static/js/markdown.js");

for (const unit of ["`", "*", "_", "~"]) {
  test(`a thousand of ${unit} in a row are shown as they are`, () => {
    const root = new Element("div");
    const stream = new MarkdownStream(root);
    const text = `Hello ${unit.repeat(1100)}`;
    for (let end = 100; end <= text.length; end += 100) stream.update(text.slice(0, end));
    stream.update(text);
    stream.end();
    const [shown] = root.children;
    assert.equal(shown.className, "plain");
    assert.equal(shown.textContent, text);
  });
}

test("what is nested deeper than the parser remembers is shown as it is", () => {
  const root = new Element("div");
  const stream = new MarkdownStream(root);
  const text = "> ".repeat(1000) + "Hello";
  made = 0;
  stream.update(text);
  stream.end();
  assert.ok(made < 40);
  const [shown] = root.children;
  assert.equal(shown.className, "plain");
  assert.equal(shown.textContent, text);
});

test("levels of headings that an answer leaves out are not left out on the page", () => {
  const root = new Element("div");
  const stream = new MarkdownStream(root);
  const text = "## A\n\n#### B\n\n## C\n\n### D\n\nText\n";
  for (let end = 1; end <= text.length; end += 1) stream.update(text.slice(0, end));
  stream.end();
  const shown = root.children.map((each) => each.tag).filter((tag) => tag !== "p");
  assert.deepEqual(shown, ["h3", "h4", "h3", "h4"]);
});

test("a heading at the edge of a part of a long text is one", () => {
  const root = new Element("div");
  const stream = new MarkdownStream(root);
  const above = `${"a ".repeat(3990)}\n\nTitle\n`;
  for (const below of ["", `${"-".repeat(20)}\n`, `${"-".repeat(20)}\n\nb\n`]) {
    stream.update(above + below);
  }
  stream.end();
  assert.deepEqual(root.children.map((each) => each.tag), ["p", "h3", "div"]);
  assert.equal(root.children[1].textContent.trim(), "Title");
});

test("a long text is shown in as many calls as there is time for", () => {
  const root = new Element("div");
  const stream = new MarkdownStream(root);
  const text = `${"Some words. ".repeat(1000)}\n\nLast`;
  assert.equal(stream.update(text, performance.now() - 1), false);
  assert.equal(root.textContent, "");
  assert.equal(stream.update(text), true);
  stream.end();
  assert.equal(root.children.length, 2);
  assert.equal(root.children[1].textContent, "Last");
});

/** The most children, or lines of its own text, that an element of `root` has. */
function heaviest(root) {
  const below = root.children.filter((each) => each instanceof Element);
  const lines = root.children.filter((each) => !below.includes(each)).join("").split("\n");
  return Math.max(below.length, lines.length, ...below.map(heaviest));
}

const LONG = {
  prose: "## A\n\nWords.\n\n- b\n- c\n\n",
  code: "let a = 1;\n",
  table: "| some | words |\n",
};
const BEGINNINGS = { prose: "", code: "```\n", table: "| a | b |\n|---|---|\n" };

for (const [name, unit] of Object.entries(LONG)) {
  test(`a browser lays out a long text piece by piece: ${name}`, () => {
    const root = new Element("div");
    const stream = new MarkdownStream(root);
    let text = BEGINNINGS[name];
    for (let count = 0; count < 5000; count += 1) {
      text += unit;
      if (count % 100 === 0) stream.update(text);
    }
    stream.update(text);
    stream.end();
    assert.ok(heaviest(root) <= 1500, `${heaviest(root)} children`);
  });
}

test("later rows of a long table need not be laid out with the first ones", () => {
  const root = new Element("div");
  const stream = new MarkdownStream(root);
  const rows = Array.from({ length: 1050 }, (_, at) => `| ${at} | b |\n`);
  stream.update(`| a | b |\n|---|---|\n${rows.join("")}`);
  stream.end();
  const [table, ...parts] = root.children[0].children;
  const tables = [table, ...parts.map((part) => part.children[0])];
  const shown = tables.map((each) => each.children.filter(({ tag }) => tag === "tbody"));
  const words = shown.flat().flatMap(({ children }) => children).map((row) => row.textContent);
  assert.deepEqual(words.map((each) => Number.parseInt(each.trim())), rows.map((_, at) => at));
  assert.deepEqual(shown.map(({ length }) => length), [2, ...Array(4).fill(2), 1]);
  for (const part of tables.slice(1)) assert.equal(part["aria-label"], "a, b");
});

test("a long table that is hidden gets no widths", (t) => {
  t.mock.method(Element.prototype, "getBoundingClientRect", () => ({ width: 0 }));
  const root = new Element("div");
  const stream = new MarkdownStream(root);
  stream.update(`| a | b |\n|---|---|\n${"| c | d |\n".repeat(450)}`);
  stream.end();
  const [table, ...parts] = root.children[0].children;
  assert.deepEqual(parts, []);
  assert.deepEqual(table.children.map(({ tag }) => tag), ["thead", ...Array(5).fill("tbody")]);
});

test("only blocks have their direction sought, not the whole text", () => {
  const root = new Element("div");
  root.dir = "auto";
  const stream = new MarkdownStream(root);
  stream.update("Words.\n\nאבג\n");
  stream.end();
  assert.equal(root.dir, "ltr");
  assert.deepEqual(root.children.map((each) => each.dir), ["auto", "auto"]);
});

test("a text reads the same in however many calls it is shown", (t) => {
  const text = "# A\n\n- b\n  - c\n\nWords $x$ of it.\n\n```\ncode\n```\n\nLast ".repeat(400);
  const whole = new Element("div");
  const stream = new MarkdownStream(whole);
  stream.update(text);
  stream.end();
  let now = 0;
  t.mock.method(performance, "now", () => (now += 5));
  const sliced = new Element("div");
  const slow = new MarkdownStream(sliced);
  let calls = 1;
  while (!slow.update(text, now + 8)) calls += 1;
  slow.end();
  assert.ok(calls > 10);
  assert.deepEqual(sliced.children.map((each) => each.tag), whole.children.map((each) => each.tag));
  assert.equal(sliced.textContent, whole.textContent);
});

for (const [written, shown] of [
  ["1 2 3 4 5 6 7 8", "1 2 3 4"],
  ["- 1 2 3 4 5 6 7", "1 2 3"],
  ["3.14159265358979", "3.1415"],
  ["2026-11-30 10:15", "2026-11-30"],
]) {
  test(`a line of numbers is shown while it grows: ${written}`, () => {
    const root = new Element("div");
    const stream = new MarkdownStream(root);
    let seen = false;
    for (let end = 1; end < written.length; end += 1) {
      stream.update(written.slice(0, end));
      seen ||= root.textContent.startsWith(shown);
    }
    assert.ok(seen, root.textContent);
  });
}

test("brackets are shown while it is open whether they are a link, and where they are none", () => {
  const written = "a[0] of [Your name], see [^1] and [there](https://a.example/x).";
  const root = new Element("div");
  const stream = new MarkdownStream(root);
  const seen = [];
  for (let end = 1; end <= written.length; end += 1) {
    stream.update(written.slice(0, end));
    seen.push(root.textContent);
  }
  stream.end();
  for (const begun of ["a[0", "a[0] of [Your", "a[0] of [Your name], see 1 and [th"]) {
    assert.ok(seen.includes(begun), begun);
  }
  assert.equal(root.textContent, "a[0] of [Your name], see 1 and there.");
  const [paragraph] = root.children;
  const tags = paragraph.children.map((each) => each.tag).filter(Boolean);
  assert.deepEqual(tags.filter((tag) => tag !== "span"), ["sup", "a"]);
});

/** The texts of the cells of all tables, as lists of rows, and the texts beside them. */
function shape(root) {
  return root.children.flatMap((each) => {
    if (each.tag !== "div") return each.querySelector("table") ? shape(each) : [each.textContent];
    const groups = each.children[0].children.flatMap((group) => group.children);
    return [groups.map((row) => row.children.map((cell) => cell.textContent.trim()))];
  });
}

const TABLE = [["a", "b"], ["1", "2"], ["3", "4"]];
const TABLES = [
  ["without outer bars", "a | b\n--- | ---\n1 | 2\n3 | 4\n", [TABLE]],
  ["without last bars", "| a | b\n|---|---\n| 1 | 2\n| 3 | 4\n", [TABLE]],
  ["with blanks at their ends", "| a | b | \n|---|---| \n| 1 | 2 | \n| 3 | 4 |\n", [TABLE]],
  ["with rows of both kinds", "| a | b |\n--- | ---\n1 | 2\n| 3 | 4 |\n", [TABLE]],
  ["below a line", "T:\na | b\n|:-|-:|\n1 | 2\n3 | 4\n\nEnd", ["T:", TABLE, "End"]],
  ["in a list", "- x\n  | a | b |\n  |---|---|\n  | 1 | 2 |\n  | 3 | 4 |\n- y\n", ["x", TABLE, "y"]],
  ["in a list without bars", "- x\n\n  a | b\n  --- | ---\n  1 | 2\n  3 | 4\n- y\n", ["x", TABLE, "y"]],
  ["in an item", "1. x\n   a | b\n   --- | ---\n   1 | 2\n   3 | 4\n", ["x", TABLE]],
  ["in a quotation", "> q\n>\n> | a | b |\n> |---|---|\n> | 1 | 2 |\n> | 3 | 4 |\n>\n> r\n", ["q", TABLE, "r"]],
  ["in a quotation without bars", "> a | b\n> --- | ---\n> 1 | 2\n> 3 | 4\n\nEnd", [TABLE, "End"]],
  ["before a list", "a | b\n-|-\n1 | 2\n3 | 4\n- x\n- y", [TABLE, "xy"]],
];

for (const [name, written, expected] of TABLES) {
  test(`a table is one while it streams: ${name}`, () => {
    const sizes = [1, 7, written.length];
    for (const size of sizes) {
      const root = new Element("div");
      const stream = new MarkdownStream(root);
      for (let end = size; end < written.length; end += size) {
        stream.update(written.slice(0, end));
      }
      stream.update(written);
      stream.end();
      assert.deepEqual(shape(root), expected, `in pieces of ${size}`);
    }
  });
}

test("bars without a line of dashes below them stay text", () => {
  const root = new Element("div");
  const stream = new MarkdownStream(root);
  stream.update("a | b\nc | d\n\n- x | y\n\n```\na | b\n--|--\n```\n");
  stream.end();
  const [text, list, code] = root.children;
  assert.equal(text.textContent, "a | bc | d");
  assert.equal(list.textContent, "x | y");
  assert.ok(code.textContent.endsWith("a | b\n--|--"));
});

test("many lines with a first bar are one paragraph, laid out in parts", () => {
  const root = new Element("div");
  const stream = new MarkdownStream(root);
  const rows = Array.from({ length: 1000 }, (_, at) => `| a${at} | b`);
  for (let end = 50; end <= 1000; end += 50) stream.update(rows.slice(0, end).join("\n"));
  stream.end();
  const [table, text] = root.children;
  assert.deepEqual(shape({ children: [table] }), [[["a0", "b"]]]);
  assert.equal(root.children.length, 2);
  assert.equal(text.textContent, rows.slice(1).join(""));
  assert.equal(text.children.filter((each) => each.className === "line-part").length, 9);
});

test("code in a quotation keeps its bars", () => {
  const root = new Element("div");
  const stream = new MarkdownStream(root);
  stream.update("> ```\n> | a | b |\n> |---|---|\n> ```\n\nEnd");
  stream.end();
  assert.ok(root.textContent.includes("| a | b |\n"));
  assert.ok(root.textContent.includes("|---|---|"));
});

/** What is shown of a text, for each of some sizes of the pieces in which it comes. */
function shownInPieces(written) {
  return [1, 7, written.length].map((size) => {
    const root = new Element("div");
    const stream = new MarkdownStream(root);
    for (let end = size; end < written.length; end += size) stream.update(written.slice(0, end));
    stream.update(written);
    stream.end();
    return root;
  });
}

for (const [name, before] of [["at the beginning", ""], ["below a text", "Text\n\n"], ["below a list", "- x\n\nText\n\n"]]) {
  test(`bars in indented code are no table: ${name}`, () => {
    const lines = "    | a | b |\n    |---|---|\n\n    | c |\n    d | e\n";
    for (const root of shownInPieces(`${before}${lines}\nEnd`)) {
      const code = root.children.filter(({ tag }) => tag === "div");
      const words = code.map(({ textContent }) => textContent).join("\n");
      for (const line of ["| a | b |", "|---|---|", "| c |", "d | e"]) {
        assert.ok(words.split("\n").some((each) => each.endsWith(line)), `${line} in ${words}`);
      }
      assert.equal(code.some((each) => each.className === "table-scroll"), false);
      assert.ok(root.textContent.endsWith("End"));
    }
  });
}

test("a table that is indented in an item is one", () => {
  const written = "- x\n\n    | a | b |\n    |---|---|\n    | 1 | 2 |\n    | 3 | 4 |\n";
  for (const root of shownInPieces(written)) assert.deepEqual(shape(root), ["x", TABLE]);
});

test("code in a quotation that nobody closes ends with the quotation", () => {
  const written = "> ```\n> a | b\n\nText\n\na | b\n--- | ---\n1 | 2\n3 | 4\n";
  for (const root of shownInPieces(written)) {
    assert.deepEqual(shape(root).slice(1), ["Text", TABLE]);
  }
});

test("a table begins on the side of its head while it streams", () => {
  const sides = ["ה|b", "1|**ع**", "b|ה", "1|2"].map((head) => {
    const root = new Element("div");
    const stream = new MarkdownStream(root);
    stream.update(`|${head}|\n|-|-|\n|ו|c|\n`);
    stream.end();
    return root.children[0].children[0].dir;
  });
  assert.deepEqual(sides, ["rtl", "rtl", "ltr", undefined]);
});

const textOf = (node) => node.textContent ?? node;

/** Tags and texts, each text as one. */
function tree(element) {
  const found = [];
  for (const each of element.children) {
    if (each instanceof Element) found.push([each.tag, ...tree(each)]);
    else if (typeof found.at(-1) === "string") found.push(found.pop() + textOf(each));
    else found.push(textOf(each));
  }
  return found;
}

const SH = ["div", ["div", ["span", "sh"], ["button", "Copy"]], ["pre", ["code", ["span", "x"]]]];

test("code below the text of an item stays in the item", () => {
  const written = "1. Run:\n   ```sh\n   x\n   ```\n   more text\n2. Then";
  for (const root of shownInPieces(written)) {
    assert.deepEqual(tree(root), [
      ["ol", ["li", ["p", "Run:"], SH, ["p", "more text"]], ["li", ["p", "Then"]]],
    ]);
  }
});

test("code behind a blank line of an item stays in the item", () => {
  const written = "1. Run:\n\n   ```sh\n   x\n   ```\n2. Then";
  for (const root of shownInPieces(written)) {
    assert.deepEqual(tree(root), [["ol", ["li", ["p", "Run:"], SH], ["li", ["p", "Then"]]]]);
  }
});

test("what follows code that begins an item keeps its levels", () => {
  const written = `- \`\`\`py\n${"  a line of code\n".repeat(20)}  \`\`\`\n\n- one\n  - two`;
  for (const root of shownInPieces(written)) {
    const last = ["li", ["p", "one"], ["ul", ["li", ["p", "two"]]]];
    assert.deepEqual(tree(root).at(-1).at(-1), last);
  }
});

const ADDRESSES = JSON.parse(readFileSync(new URL("address_cases.json", import.meta.url)));

for (const [written, address] of ADDRESSES) {
  test(`an address ends before its sentence does: ${JSON.stringify(written)}`, () => {
    const root = new Element("div");
    const stream = new MarkdownStream(root);
    for (let end = 1; end <= written.length; end += 1) stream.update(written.slice(0, end));
    stream.end();
    const link = root.children[0].children.find((each) => each.tag === "a");
    assert.deepEqual([link.href, link.textContent], [address, address]);
    assert.equal(root.textContent, written.trim());
  });
}

for (const [target, address] of [
  ["https://a.test/2020/https://b.test/c", "https://a.test/2020/https://b.test/c"],
  ["https://a.test/x,https://b.test", "https://a.test/x,https://b.test"],
  ["<https://a.test/b_(c)>", "https://a.test/b_(c)"],
  ['<https://a.test/b> "title"', "https://a.test/b"],
]) {
  test(`words link to an address as it is written: ${target}`, () => {
    for (const root of shownInPieces(`See [x](${target}) and`)) {
      const links = root.children[0].children.filter((each) => each.tag === "a");
      assert.deepEqual(links.map(({ href, textContent }) => [href, textContent]), [[address, "x"]]);
      assert.equal(root.textContent, "See x and");
    }
  });
}

test("code that is indented outside a list has no indentation", () => {
  for (const before of ["Text:\n", "", "# A\n"]) {
    for (const root of shownInPieces(`${before}  \`\`\`sh\n  x\n  \`\`\`\nend`)) {
      assert.deepEqual(tree(root).slice(-2), [SH, ["p", "end"]]);
    }
  }
});

/** A browser knows all names; this one knows those of the tests. */
const NAMED = { amp: "&", lt: "<", gt: ">", auml: "ä", copy: "©" };
globalThis.DOMParser = class {
  parseFromString(entity) {
    const name = entity.slice(1, -1);
    const code = name.startsWith("#x") ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1));
    const textContent = name.startsWith("#") ? String.fromCodePoint(code) : (NAMED[name] ?? entity);
    return { body: { textContent } };
  }
};

for (const table of ["| a | b | c | d |\n|:--|--:|:-:|---|\n| e | f | g | h |\n", "a | b | c | d\n:--|--:|:-:|---\ne | f | g | h\n"]) {
  test(`columns are aligned while a table streams: ${JSON.stringify(table)}`, () => {
    for (const root of shownInPieces(table)) {
      const shown = root.children[0].children[0];
      const rows = shown.children.flatMap(({ children }) => children);
      const sides = ["to-left", "to-right", "to-center", ""];
      for (const row of rows) assert.deepEqual(row.children.map((each) => each.className ?? ""), sides);
      assert.equal(rows.length, 2);
    }
  });
}

const BLOCKS = JSON.parse(readFileSync(new URL("block_cases.json", import.meta.url)));
const UNCLOSED = new Set(["br", "hr", "input"]);

/** HTML without attributes, except those in block_cases.json. */
function html(node) {
  if (!(node instanceof Element)) return textOf(node);
  const inner = node.children.map(html).join("");
  if (["span", "button"].includes(node.tag) || node.className === "code-head") {
    return node.className === "code-part" ? node.textContent : node.tag === "span" ? inner : "";
  }
  const list = node.tag === "p" && node.parent.tag === "li" && node.parent.parent;
  if (list?.className === "is-tight") return inner;
  const start = node.start ? ` start="${node.start}"` : "";
  return `<${node.tag}${start}>${inner}${UNCLOSED.has(node.tag) ? "" : `</${node.tag}>`}`;
}

for (const [written, expected] of BLOCKS) {
  test(`blocks are the same while they stream: ${JSON.stringify(written)}`, () => {
    for (const root of shownInPieces(written)) {
      const all = root.children.map(html).join("").replaceAll("\n", "");
      assert.equal(all.replace(/ *(<[^>]*>) */g, "$1"), expected);
    }
  });
}

test("code keeps what is indented deeper than its fence", () => {
  const written = "1. Run:\n\n   ```\n   if x\n     y\n\n   z\n   ```\n2. Then\n";
  for (const root of shownInPieces(written)) {
    const [code] = tree(root)[0][1][2][2].slice(1);
    assert.deepEqual(code, ["code", ["span", "if x\n  y\n\nz"]]);
  }
});

const FORMULAS = JSON.parse(readFileSync(new URL("math_cases.json", import.meta.url)));

const IN_ITEM = { text: "- a\n  $$\n  b\n  - c\n  $$\n- d\n", formulas: ["$$\nb\n- c\n$$"] };

function formulasIn(node) {
  if (node.className === "math") return [node.textContent];
  return (node.children ?? []).flatMap(formulasIn);
}

for (const { text, formulas } of [...FORMULAS, IN_ITEM]) {
  test(`formulas are the same while they stream: ${JSON.stringify(text)}`, () => {
    for (const root of shownInPieces(text)) assert.deepEqual(formulasIn(root), formulas);
  });
}
