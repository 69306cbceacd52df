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

/** Removes the line that was shown last, of the last paragraph of `root`. */
export function removeLastLine(root) {
  const paragraph = root.lastElementChild;
  if (paragraph?.tagName !== "P") return;
  const last = paragraph.lastElementChild;
  const box = last?.className === LINES ? last : paragraph;
  const nodes = [...box.childNodes];
  const end = nodes.findLastIndex((node) => node.tagName === "BR");
  if (end > 0) for (const node of nodes.slice(end)) box.removeChild(node);
  else box.remove();
}
