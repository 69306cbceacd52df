// Paragraphs of streamed Markdown with many lines, and the removal of a line.

const MANY = 100; // lines that the browser lays out by themselves
const LINES = "line-part"; // class of the next lines of a paragraph

const breaks = new WeakMap(); // paragraph, or part of one -> its lines that are whole

/** Where the next line of a paragraph goes. So many lines are an element, which the
 *  browser lays out by itself. */
export function nextLineBox(box) {
  if (box.tagName !== "P" && box.className !== LINES) return box;
  const count = (breaks.get(box) ?? 0) + 1;
  breaks.set(box, count);
  if (count < MANY) return box;
  const next = document.createElement("span");
  next.className = LINES;
  (box.tagName === "P" ? box : box.parentElement).append(next);
  return next;
}

/** Removes the line that was shown last, of a paragraph or an item of a list. */
export function removeLastLine(root) {
  const box = lastBox(root);
  if (!box) return;
  const nodes = [...box.childNodes];
  const end = nodes.findLastIndex((node) => node.tagName === "BR");
  if (end > 0) for (const node of nodes.slice(end)) box.removeChild(node);
  else if (box.className === LINES) box.remove();
  else if (box.tagName === "P") removeWithQuote(box);
}

function lastBox(root) {
  let box = null;
  for (let node = root; node; node = node.lastElementChild) {
    if (["P", "LI"].includes(node.tagName) || node.className === LINES) box = node;
  }
  return box;
}

/** Removes a paragraph, and the quotation that has no other one. */
function removeWithQuote(paragraph) {
  const { parentElement: parent } = paragraph;
  const isAlone = parent.tagName === "BLOCKQUOTE" && parent.childElementCount === 1;
  (isAlone ? parent : paragraph).remove();
}
