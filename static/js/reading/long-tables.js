// Tables of streamed Markdown with many rows.
//
// The widths of a table's columns depend on all of its rows, so a browser would lay out
// thousands of rows again with each new one. Once the first rows have decided the widths,
// the next rows are in tables of their own with the same widths.

const GROUP = 100; // rows of a `tbody`
const WIDE = 200; // rows that decide the widths
const PART = "rows-part"; // class of a later table's box

const latest = new WeakMap(); // table -> its part that grows

/** Where the next row of the table goes. */
export function groupForNextRow(table) {
  const growing = latest.get(table) ?? table;
  const last = growing.lastElementChild;
  if (!last) return growing.appendChild(make("thead"));
  if (last.tagName === "TBODY" && last.childElementCount < GROUP) return last;
  if (rowsOf(growing) < WIDE) return growing.appendChild(make("tbody"));
  if (!boxOf(table).width) return growing.appendChild(make("tbody")); // hidden: no widths yet
  const part = nextPart(table);
  latest.set(table, part);
  return part.appendChild(make("tbody"));
}

/** The rows of the table's groups, which are full. */
function rowsOf(table) {
  const groups = [...table.children].filter(({ tagName }) => tagName === "TBODY");
  return groups.length * GROUP;
}

function nextPart(table) {
  if (!table.classList.contains("is-fixed")) fix(table);
  const box = make("div");
  box.className = PART;
  box.style.width = table.style.width;
  const part = box.appendChild(make("table"));
  part.className = "is-fixed";
  part.setAttribute("aria-label", wordsOfHead(table));
  if (table.dir) part.dir = table.dir;
  part.style.width = table.style.width;
  part.append(table.querySelector("colgroup").cloneNode(true));
  table.parentElement.append(box);
  return part;
}

/** Names a table that has no head of its own. */
function wordsOfHead(table) {
  const cells = [...table.querySelector("tr").children];
  return cells.map(({ textContent }) => textContent.trim()).join(", ");
}

/** Makes the widths that the columns have now their lasting ones. */
function fix(table) {
  const columns = make("colgroup");
  for (const { width } of [...table.querySelector("tr").children].map(boxOf)) {
    columns.appendChild(make("col")).style.width = `${width}px`;
  }
  table.style.width = `${boxOf(table).width}px`;
  table.classList.add("is-fixed");
  table.prepend(columns);
}

const boxOf = (element) => element.getBoundingClientRect();
const make = (tag) => document.createElement(tag);
