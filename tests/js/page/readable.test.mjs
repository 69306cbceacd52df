// Arguments and results of tools: their numbers, and how deep they may be.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, openPage } from "./page.mjs";

openPage();
const { pretty, preview, showPieces } = await import("../../../static/js/readable.js");

const NUMBERS = '{"id":1234567890123456789,"one":1.0,"huge":1e400,"low":-0,"n":7}';

function shown(output) {
  const place = new Element("div");
  showPieces(place, output);
  return place;
}

test("copied JSON is indented, and its numbers and texts are as they are written", () => {
  assert.equal(
    pretty('{"10": [], "2":{ },\n"a\\"{,":[1.0,"x: \\u00e9",{"b":null}]}'),
    '{\n  "10": [],\n  "2": {},\n  "a\\"{,": [\n    1.0,\n    "x: \\u00e9",\n    {\n      "b": null\n    }\n  ]\n}',
  );
  assert.equal(pretty(NUMBERS).replace(/\s/g, ""), NUMBERS);
  for (const text of ["no JSON", '"text"', "1.0", '{"a": 1.0', "[1.0,]"]) {
    assert.equal(pretty(text), text);
  }
  const value = { a: [1, "b", [], {}], c: null };
  assert.equal(pretty(JSON.stringify(value)), JSON.stringify(value, null, 2));
});

test("trees, tables and previews show numbers as they are written", () => {
  const tree = shown(NUMBERS).querySelector(".json");
  assert.equal(tree.textContent.replaceAll(" ", ""), NUMBERS);
  const numbers = tree.querySelectorAll(".mi").map(({ textContent }) => textContent);
  assert.deepEqual(numbers, ["1234567890123456789", "1.0", "1e400", "-0", "7"]);
  const rows = shown('[{"id": 12345678901234567890, "a": true}, {"a": "1.0"}]');
  const cells = rows.querySelectorAll("td").map(({ textContent }) => textContent);
  assert.deepEqual(cells, ["12345678901234567890", "true", "", "1.0"]);
  assert.equal(preview('{"a": 1.0, "b": [2.50, "x"], "c": "y"}'), '1.0, [2.50,"x"], y');
});

test("JSON that is nested too deep for a page is shown as text", () => {
  for (const levels of [101, 1000, 20_000]) {
    const deep = "[".repeat(levels) + "]".repeat(levels);
    assert.equal(shown(deep).querySelector("pre").textContent, deep);
    assert.equal(pretty(deep), deep);
    assert.equal(preview(`{"a": ${deep}}`), "");
  }
  const nested = "[".repeat(100) + "]".repeat(100);
  assert.equal(shown(nested).querySelector(".json").textContent, nested);
});
