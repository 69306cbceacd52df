// Code that is highlighted line by line while it streams.
import assert from "node:assert/strict";
import test from "node:test";

import { Highlighter } from "../../static/js/reading/highlight.js";

const shown = (language, ...lines) => {
  const highlighter = new Highlighter(language);
  return lines.map((line) => highlighter.tokens(line).filter(([kind]) => kind));
};

test("keywords, strings, numbers and comments are told apart", () => {
  assert.deepEqual(shown("python", 'def f(x): return "a # b", 0x1F  # done'), [
    [["k", "def"], ["k", "return"], ["s2", '"a # b"'], ["mi", "0x1F"], ["c1", "# done"]],
  ]);
  assert.deepEqual(shown("SQL", "SELECT 1 -- one"), [
    [["k", "SELECT"], ["mi", "1"], ["c1", "-- one"]],
  ]);
});

test("what is open goes on in the next lines", () => {
  assert.deepEqual(shown("js", "/* one", "if two */ if", "if"), [
    [["cm", "/* one"]],
    [["cm", "if two */"], ["k", "if"]],
    [["k", "if"]],
  ]);
  assert.deepEqual(shown("python", '"""One', 'two""" if'), [
    [["s2", '"""One']],
    [["s2", 'two"""'], ["k", "if"]],
  ]);
});

test("nothing of a line is lost, and what is hard is left alone", () => {
  const lines = ["it's \\ `open", "\"".repeat(400), "a".repeat(5000), "'\\".repeat(200)];
  for (const language of ["js", "python", "yaml", "css"]) {
    const highlighter = new Highlighter(language);
    for (const line of lines) {
      const text = highlighter.tokens(line).map(([, each]) => each).join("");
      assert.equal(text, line);
    }
  }
  assert.equal(new Highlighter("brainfuck").isKnown, false);
  assert.equal(new Highlighter("constructor").isKnown, false);
});
