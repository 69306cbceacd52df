// Texts and numbers in the language of the page.
//
// The catalogue is a script of its own, which pages in another language than English
// load before the modules (conversations/pages/script_texts.py). Without it a text is
// shown as it is written here. Names in a text are written %(name)s.

import { formatLazily, locale } from "./locale.js";

const { texts = {}, plural = (n) => Number(n !== 1) } = globalThis.parleyTexts ?? {};

const whole = formatLazily(() => new Intl.NumberFormat(locale));
const upToOne = formatLazily(() => new Intl.NumberFormat(locale, { maximumFractionDigits: 1 }));
const exactlyOne = formatLazily(() => {
  const digits = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
  return new Intl.NumberFormat(locale, digits);
});

export function gettext(text) {
  return texts[text] ?? text;
}

/** The form of the text that goes with the number. */
export function ngettext(one, many, number) {
  const forms = texts[one];
  if (forms) return forms[Number(plural(number))];
  return number === 1 ? one : many;
}

/** Replaces `%(name)s` by the value of that name; numbers as the language writes them. */
export function interpolate(text, values) {
  return text.replace(/%\((\w+)\)s/g, (_, name) => {
    const value = values[name];
    return typeof value === "number" ? whole(value) : value;
  });
}

/** With at most one digit after the point. */
export const shortNumber = (value) => upToOne(value);

/** With one digit after the point. */
export const oneDigit = (value) => exactlyOne(value);
