// Shows an attached text or CSV file over the page.

import { closeByBackdrop } from "../backdrop.js";
import { $, element, slot } from "../dom.js";
import { locale } from "../locale.js";
import { rowsOf } from "./csv.js";

const LINK = 'a.file[href^="/api/attachments/"]';
const TEXT = /\.(txt|text|md|markdown|log|json|jsonl|xml|ya?ml|toml|ini|cfg|conf|sql|sh|py|js|ts|css|html?|svg|c|h|cpp|java|go|rs|rb|php|tex|diff|patch)$/i;
const TABLE = /\.(csv|tsv)$/i;
const LARGEST = 2_000_000; // bytes; a larger file is saved instead
const SHOWN = 100_000; // characters
const ROWS = 500;

export function previewFiles() {
  const dialog = $("#file-preview");
  closeByBackdrop(dialog);
  document.addEventListener("click", async (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    if (event.target.closest("[data-close-file]")) return dialog.close();
    const link = event.target.closest(LINK);
    if (!link || !dialog.showModal) return;
    const name = link.textContent.trim();
    if (!TEXT.test(name) && !TABLE.test(name)) return;
    event.preventDefault();
    try {
      show(dialog, link.href, name, await read(link.href));
    } catch {
      location.assign(link.href);
    }
  });
}

async function read(url) {
  const response = await fetch(url);
  const isLarge = Number(response.headers.get("Content-Length")) > LARGEST;
  if (!response.ok || isLarge) throw new Error("not shown");
  const blob = await response.blob();
  if (blob.size > LARGEST) throw new Error("not shown");
  return { size: blob.size, text: await blob.text() };
}

function show(dialog, url, name, { size, text }) {
  slot(dialog, "file-name").textContent = name;
  slot(dialog, "file-size").textContent = inWords(size);
  slot(dialog, "file-link").href = url;
  slot(dialog, "file-cut").hidden = text.length <= SHOWN;
  const part = text.slice(0, SHOWN);
  const body = TABLE.test(name) ? table(rowsOf(part, ROWS)) : plain(part);
  slot(dialog, "file-body").replaceChildren(body);
  dialog.showModal();
}

function plain(textContent) {
  return element("pre", { dir: "auto", textContent });
}

function table([head = [], ...rows]) {
  const line = (cells, tag) =>
    element("tr", {}, ...cells.map((text) => element(tag, { dir: "auto", textContent: text })));
  const body = element("tbody", {}, ...rows.map((cells) => line(cells, "td")));
  return element("table", {}, element("thead", {}, line(head, "th")), body);
}

export function inWords(bytes) {
  const units = ["byte", "kilobyte", "megabyte"];
  const power = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), 2);
  const style = { style: "unit", unit: units[power], maximumFractionDigits: 1 };
  return new Intl.NumberFormat(locale, style).format(bytes / 1000 ** power);
}
