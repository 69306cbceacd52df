// Shows times, which the server renders in its own zone, in the zone of the browser.

import { formatLazily, locale } from "./locale.js";

const inStyle = (style) => formatLazily(() => new Intl.DateTimeFormat(locale, style));
const minute = inStyle({ dateStyle: "medium", timeStyle: "short" });
const FORMS = {
  day: inStyle({ dateStyle: "medium" }),
  second: inStyle({ dateStyle: "medium", timeStyle: "medium" }),
};

export function localiseTimes(root) {
  for (const time of root.querySelectorAll("time:not([data-local])")) {
    const write = FORMS[time.dataset.form] ?? minute;
    time.textContent = write(new Date(time.dateTime));
    time.dataset.local = "";
  }
}
