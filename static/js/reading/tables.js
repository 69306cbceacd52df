// Tables of answers.

import { cloned } from "../dom.js";
import { loadRows } from "../text-parts.js";
import { fresh } from "./complete.js";
import { showCopied, writeText } from "./clipboard.js";

const FORMULA = /^[=+\-@\t\r]/; // what a spreadsheet would run; numbers are none
const NUMBER = /^[+-]?[\d.,\s]+%?$/;

export function addTableTools(root) {
  for (const box of fresh(root, ".prose .table-scroll", "tools")) {
    box.tabIndex = 0;
    box.after(cloned("table-tools"));
  }
}

export async function onTableTool(event) {
  const button = event.target.closest('[data-table="csv"]');
  if (!button) return;
  const box = button.closest(".table-tools").previousElementSibling;
  await loadRows(box.querySelector("table"));
  const rows = [...box.querySelectorAll("tr")]; // also of the parts of one that streams
  showCopied(button, await writeText(csvOf({ rows })));
}

export function csvOf(table) {
  const rows = [...table.rows].map(({ cells }) =>
    [...cells].map((each) => quoted(textOf(each))).join(","),
  );
  return `${rows.join("\r\n")}\r\n`;
}

function textOf(cell) {
  const copy = cell.cloneNode(true);
  for (const formula of copy.querySelectorAll("[data-tex]")) {
    formula.replaceWith(formula.dataset.tex);
  }
  return copy.textContent.trim();
}

export function quoted(text) {
  const isSafe = !FORMULA.test(text) || NUMBER.test(text);
  const plain = isSafe ? text : `'${text}`;
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}
