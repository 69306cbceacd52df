// The language of numbers and times.

const language = globalThis.document?.documentElement?.lang || "en";

/** The browser's own form of the page's language, such as de-AT, else that language. */
export const locale =
  globalThis.navigator?.languages?.find((own) => own.startsWith(`${language}-`)) ?? language;

/** Returns a function that makes its format at the first call: each takes milliseconds. */
export function formatLazily(make) {
  let format;
  return (value) => (format ??= make()).format(value);
}
