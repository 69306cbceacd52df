// The language of numbers and times.

const language = globalThis.document?.documentElement?.lang || "en";

/** The browser's own form of the page's language, such as de-AT, else that language. */
export const locale =
  globalThis.navigator?.languages?.find((own) => own.startsWith(`${language}-`)) ?? language;

/** A format made at its first use: each takes a browser milliseconds. */
export function later(make) {
  let format;
  return (value) => (format ??= make()).format(value);
}
