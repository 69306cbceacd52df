// What is sent of a message, and when it is sent again.

const FIRST_DELAY = 400; // milliseconds before the first new attempt
const LONGEST_DELAY = 8000;

/** The input of a message: its text, or content parts with the files first. */
export function inputOf({ text, model, parts, when, branch }) {
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
