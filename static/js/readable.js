// Readable display of tool arguments and results: JSON as a collapsible tree, a list of
// flat objects as a table, pictures as images.
//
// conversations/turns/tool_display.py does the same on the server, with the same limits.

import { element, icon } from "./dom.js";
import { gettext, interpolate } from "./texts.js";

const MAX_COLUMNS = 12;
const MAX_ROWS = 100;
const MAX_NODES = 1500;
const MAX_DEPTH = 100;
const OPEN_DEPTH = 2;
const IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,/;
const WEB = /^https?:\/\//i;
const OURS = "/api/attachments/";
const TEXT = /"(?:[^"\\]+|\\.)*"/; // in JSON
const TOKENS = new RegExp(`${TEXT.source}|\\[\\s*\\]|\\{\\s*\\}|[[\\]{},:]|[^\\s[\\]{},:"]+`, "g");
const NUMBERS = new RegExp(`${TEXT.source}|-?\\d[\\d.eE+-]*`, "g");
const EXACT = `\ue000${Math.random()}:`; // marks a number that is held as a text
const MARKED = new RegExp(`"${EXACT}([^"]*)"`, "g");
const PARTS = new Set(["input_text", "output_text", "text", "input_image", "input_file"]);

/** Shows `output`: text, which may be JSON, or a list of content parts. */
export function showPieces(place, output) {
  place.replaceChildren(...pieces(output));
}

function pieces(output) {
  const isParts = Array.isArray(output) && output.every((part) => PARTS.has(part?.type));
  if (isParts) return output.flatMap(ofPart);
  return output === null || output === "" ? [] : written(output);
}

function ofPart(part) {
  if (part.type === "input_image" || part.type === "input_file") return [filePiece(part)];
  return written(part.text ?? "");
}

/** An `input_image` or `input_file`, as a picture or a link. */
export function filePiece({ type, file_id, image_url, file_url, filename }) {
  const address = file_id ? `${OURS}${file_id}/` : (image_url ?? file_url ?? "");
  const isPicture = type === "input_image";
  if (isPicture && (file_id || IMAGE.test(address))) return picture(address, !!file_id);
  const isLink = file_id || WEB.test(address);
  const name = isPicture ? gettext("Picture") : (filename ?? gettext("file"));
  return fileLink(name, isLink ? address : "", file_id ? "" : "_blank");
}

function picture(url, isOurs) {
  const image = element("img", { src: url, alt: gettext("Picture"), loading: "lazy" });
  const link = isOurs ? { href: url, target: "_blank", rel: "noopener" } : {};
  return element(isOurs ? "a" : "span", { className: "picture", ...link }, image);
}

function fileLink(name, href, target) {
  const words = element("span", { dir: "auto", textContent: name });
  const link = href && { href, target, rel: "noopener noreferrer nofollow" };
  const tag = href ? "a" : "span";
  return element(tag, { className: "file", ...link }, icon("file"), words);
}

function written(value) {
  const parsed = parse(value);
  if (typeof parsed === "string") return [plain(parsed)];
  const columns = columnsOf(parsed);
  if (columns.length) return [...table(columns, parsed)];
  if (isContainer(parsed) && count(parsed) <= MAX_NODES) return [tree(parsed)];
  return [plain(pretty(parsed))];
}

function plain(text) {
  return element("pre", { tabIndex: 0, dir: "auto", textContent: text });
}

/** Indented JSON, with its numbers as they are written; other text is left as it is. */
export function pretty(value) {
  if (typeof parse(value) === "string") return value;
  return indented(typeof value === "string" ? value : JSON.stringify(value));
}

function indented(json) {
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  const spaced = (token) => {
    if (token === ",") return token + line();
    if (token === ":") return ": ";
    if (/^[[{]\s*[\]}]$/.test(token)) return token[0] + token.at(-1); // it is empty
    if ("[{".includes(token)) depth += 1;
    else if ("]}".includes(token)) depth -= 1;
    else return token;
    return "[{".includes(token) ? token + line() : line() + token;
  };
  return json.match(TOKENS).map(spaced).join("");
}

/** The JSON with the numbers that this script cannot hold as marked texts. */
function exactly(json) {
  return json.replace(NUMBERS, (token) => {
    if (token[0] === '"' || String(Number(token)) === token) return token;
    return JSON.stringify(EXACT + token);
  });
}

const isExact = (value) => typeof value === "string" && value.startsWith(EXACT);

const jsonOf = (value) => JSON.stringify(value).replace(MARKED, "$1");

const inWords = (value) =>
  typeof value === "string" && !isExact(value) ? value : jsonOf(value);

/** The object or list that `value` contains as JSON; else `value` itself. */
function parse(value) {
  if (typeof value !== "string") return value;
  try {
    const parsed = JSON.parse(value);
    if (!isContainer(parsed) || isDeep(parsed)) return value;
    const exact = exactly(value);
    return exact === value ? parsed : JSON.parse(exact);
  } catch {
    return value;
  }
}

const isContainer = (value) => value !== null && typeof value === "object";

const inside = (level) =>
  level.flatMap((inner) => (isContainer(inner) ? Object.values(inner) : []));

/** Whether it has more levels than a page can show. */
function isDeep(value) {
  let level = [value];
  for (let depth = 0; depth < MAX_DEPTH && level.length; depth += 1) level = inside(level);
  return level.length > 0;
}

/** The values of a call's arguments in a few words; "" while they are incomplete. */
export function preview(text, longest = 80) {
  const values = parse(text);
  if (!isContainer(values) || Array.isArray(values)) return "";
  const words = Object.values(values)
    .map(inWords)
    .join(", ");
  return shortened(words, longest);
}

export function shortened(text, longest = 80) {
  const words = text.replace(/\s+/g, " ").trim();
  return words.length <= longest ? words : `${words.slice(0, longest - 1)}…`;
}

// Tables

function columnsOf(value) {
  if (!Array.isArray(value) || value.length < 2) return [];
  const isFlat = (row) =>
    isContainer(row) && !Array.isArray(row) && Object.keys(row).length > 0 &&
    !Object.values(row).some(isContainer);
  if (!value.every(isFlat)) return [];
  const names = [...new Set(value.flatMap(Object.keys))];
  return names.length <= MAX_COLUMNS ? names : [];
}

function* table(columns, value) {
  const heads = columns.map((name) =>
    element("th", { scope: "col", textContent: name }),
  );
  const rows = value.slice(0, MAX_ROWS).map((row) => {
    const cells = columns.map((name) => cell(row[name]));
    return element("tr", {}, ...cells);
  });
  const head = element("thead", {}, element("tr", {}, ...heads));
  const whole = element("table", {}, head, element("tbody", {}, ...rows));
  yield element("div", { className: "table-scroll" }, whole);
  const more = value.length - MAX_ROWS;
  if (more > 0) {
    const textContent = interpolate(gettext("and %(more)s more"), { more });
    yield element("p", { className: "muted", textContent });
  }
  const label = element("summary", { textContent: gettext("As JSON") });
  yield element("details", { className: "raw" }, label, tree(value));
}

function cell(value) {
  return element("td", { dir: "auto", textContent: inWords(value ?? "") });
}

// Trees

function count(value) {
  let [total, level] = [0, [value]];
  while (level.length && total <= MAX_NODES) {
    total += level.length;
    level = inside(level);
  }
  return total;
}

/** A tree whose text is the JSON and whose objects and lists can be collapsed. */
function tree(value) {
  return element("div", { className: "json", dir: "ltr" }, ...node([], value, 0, ""));
}

function* node(name, value, depth, tail) {
  if (!isContainer(value) || !Object.keys(value).length) {
    yield element("div", {}, ...name, scalar(value), tail);
    return;
  }
  const [first, last] = Array.isArray(value) ? "[]" : "{}";
  const inner = element("div", {}, ...children(value, depth + 1));
  if (depth === 0) {
    yield element("div", {}, first);
    yield inner;
    yield element("div", {}, last);
    return;
  }
  const summary = element("summary", {}, ...name, first);
  summary.dataset.closed = `${Object.keys(value).length} ${last}`;
  const open = depth < OPEN_DEPTH;
  const end = element("div", {}, last, tail);
  yield element("details", { open }, summary, inner, end);
}

function* children(value, depth) {
  const entries = Object.entries(value);
  for (const [number, [name, inner]] of entries.entries()) {
    const tail = number < entries.length - 1 ? "," : "";
    const named = Array.isArray(value) ? [] : [token("nt", JSON.stringify(name)), ": "];
    yield* node(named, inner, depth, tail);
  }
}

function scalar(value) {
  if (isContainer(value)) return JSON.stringify(value);
  const kinds = { string: isExact(value) ? "mi" : "s2", number: "mi" };
  return token(kinds[typeof value] ?? "kc", jsonOf(value));
}

function token(className, textContent) {
  return element("span", { className, textContent });
}
