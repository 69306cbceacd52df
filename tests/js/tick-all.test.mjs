// Lists of boxes in the admin: ticking, narrowing, and the number of all ticked.
import assert from "node:assert/strict";
import test from "node:test";

class Part extends EventTarget {
  checked = false;
  indeterminate = false;
  hidden = false;
  value = "";
}

/** A row with a box for this name, and a price below it. */
function row(value) {
  const box = Object.assign(new Part(), { value });
  return { box, hidden: false, textContent: `${value} USD 5`, querySelector: () => box };
}

const rows = ["meadow-5", "meadow-6", "river-1"].map(row);
const list = Object.assign(new Part(), {
  children: rows,
  querySelectorAll(by) {
    const shown = by === ":checked" ? rows.filter(({ box }) => box.checked) : rows.filter((r) => !r.hidden);
    return shown.map(({ box }) => box);
  },
});
const [all, text, total] = [new Part(), new Part(), new Part()];
const tools = {
  nextElementSibling: list,
  querySelectorAll: () => [all, text],
  querySelector: () => total,
};
globalThis.document = { querySelectorAll: () => [tools] };
await import("../../static/js/staff/tick-all.js");

function tick(box, checked) {
  box.checked = checked;
  box.dispatchEvent(new Event("change"));
}

function narrow(words) {
  text.value = words;
  text.dispatchEvent(new Event("input"));
}

test("only names are compared, not prices", () => {
  narrow("5");
  assert.deepEqual(rows.map(({ hidden }) => hidden), [false, true, true]);
  narrow("");
});

test("what is ticked and then hidden still counts", () => {
  tick(all, true);
  assert.equal(total.value, 3);
  narrow("RIVER");
  assert.equal(total.value, 3);
  tick(all, false);
  assert.deepEqual([total.value, all.indeterminate], [2, false]);
  narrow("");
  assert.deepEqual([total.value, all.indeterminate], [2, true]);
});
