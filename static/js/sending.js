// What is sent of a message, and when it is sent again.

const FIRST_DELAY = 400; // milliseconds before the first new attempt
const LONGEST_DELAY = 8000;
/** Halves of pairs, such as of an emoji that was cut in two: no server accepts them. */
const HALVES = /\p{Surrogate}/gu;

/** Bytes, which the server counts. */
export const sizeOf = (text) => new TextEncoder().encode(text).length;

/** The input of a message: its text, or content parts with the files first. */
export function inputOf({ text: written, model, parts, when, branch }) {
  const text = written.replace(HALVES, "\uFFFD");
  const words = text.trim() ? [{ type: "input_text", text }] : [];
  const item = { type: "message", role: "user", content: [...(parts ?? []), ...words] };
  const input = parts?.length ? [item] : text;
  const place = { ...(when && { when }), ...(branch && { branch }) };
  return { input, ...(model && { model }), ...place };
}

/** Milliseconds before the next attempt after this many that failed. */
export function delay(failures) {
  const longest = Math.min(FIRST_DELAY * 2 ** (failures - 1), LONGEST_DELAY);
  return longest * (0.5 + Math.random() / 2); // so that not all come back at once
}
