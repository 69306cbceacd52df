// JSON as people read it, with the colours that the server gives it too.

const TOKEN =
  /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)/g;

/** Show `value`, which is text that may be JSON, or a list of parts. */
export function showJSON(element, value) {
  const text = pretty(value);
  element.replaceChildren(...(/^[[{]/.test(text) ? coloured(text) : [text]));
}

export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  try {
    const parsed = JSON.parse(value);
    return parsed && typeof parsed === "object" ? JSON.stringify(parsed, null, 2) : value;
  } catch {
    return value;
  }
}

/** The values of a call's arguments in a few words; "" while they are incomplete. */
export function preview(text, longest = 80) {
  try {
    const values = Object.values(JSON.parse(text));
    const words = values
      .map((value) => (typeof value === "string" ? value : JSON.stringify(value)))
      .join(", ")
      .replace(/\s+/g, " ")
      .trim();
    return words.length <= longest ? words : `${words.slice(0, longest - 1)}…`;
  } catch {
    return "";
  }
}

function* coloured(text) {
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    yield text.slice(end, match.index);
    const [whole, string, colon, number] = match;
    const name = string ? (colon ? "nt" : "s2") : number ? "mi" : "kc";
    yield span(name, string ?? whole);
    if (colon) yield colon;
    end = match.index + whole.length;
  }
  yield text.slice(end);
}

function span(name, text) {
  const made = document.createElement("span");
  made.className = name;
  made.textContent = text;
  return made;
}
