// Formulas are found as on the server, however the text is cut.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { FormulaGuard, unguarded } from "../../static/js/math.js";

const CASES = JSON.parse(readFileSync(new URL("math_cases.json", import.meta.url)));
const GUARDED = /[\uf100-\uf17f]/;

/** What is given for the text, pushed in pieces of `size` characters. */
function given(text, size) {
  const formulas = new FormulaGuard();
  let all = "";
  for (let end = size; end < text.length; end += size) all += formulas.push(text.slice(0, end));
  return all + formulas.push(text, true);
}

/** The given text in which each formula is as it was written, and nothing is guarded. */
function withFormulas(text, formulas) {
  let rest = text;
  for (const formula of formulas) {
    const guarded = [...formula].map((c) => (/[\n!-/:-@[-`{-~]/.test(c) ? at(c) : c)).join("");
    assert.ok(rest.includes(guarded), `${formula} is a formula`);
    rest = rest.replace(guarded, "");
  }
  return rest;
}

const at = (c) => String.fromCharCode(0xf100 + c.charCodeAt(0));

// Code between fences is not given to FormulaGuard; markdown.test.mjs has those.
for (const { text, formulas } of CASES.filter(({ text }) => !/^(```|~~~)/m.test(text))) {
  test(`formulas of ${JSON.stringify(text)}`, () => {
    const whole = given(text, text.length);
    const rest = withFormulas(whole, formulas);
    assert.ok(![...rest].some((c) => GUARDED.test(c) && c !== at("$") && c !== at("_")), "no others");
    for (const size of [1, 2, 3, 7]) assert.equal(given(text, size), whole);
  });
}

test("nothing is lost of a text without formulas", () => {
  const text = "# A\n\n- b `c` **d**\n\n```py\nx = '$HOME'\n```\n\nend \\* of $5 text";
  assert.equal(unguarded(given(text, 1)), text);
});

test("a formula that does not end is shown as text, before the answer is over", () => {
  const formulas = new FormulaGuard();
  const shown = formulas.push(`$x ${"y ".repeat(200)}`);
  assert.ok(shown.length > 100);
  assert.ok(formulas.push(`$x ${"y ".repeat(200)}\n\\[ ${"z ".repeat(4000)}`).length > 4000);
});

test("underscores within words are no emphasis, however the text is cut", () => {
  const text = "use my_var_name, a__b, é_ü and _this_, not x_ or `a_b`\n";
  const whole = given(text, text.length);
  const words = text.replace("my_var_name", `my${at("_")}var${at("_")}name`);
  assert.equal(whole, words.replace("a__b", `a${at("_")}${at("_")}b`).replace("é_ü", `é${at("_")}ü`));
  for (const size of [1, 2, 3, 7]) assert.equal(given(text, size), whole);
});

test("a million underscores are read at once", () => {
  const formulas = new FormulaGuard();
  const text = `a${"_".repeat(1_000_000)}b`;
  for (let end = 100_000; end < text.length; end += 100_000) formulas.push(text.slice(0, end));
  assert.ok(formulas.push(text, true).length > 0);
});
