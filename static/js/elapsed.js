// Elapsed-time labels such as `Thinking 12 s`, updated by one timer for the whole page.

import { gettext, interpolate, oneDigit } from "./texts.js";

const running = new Map(); // element -> {label, since}
let timer = 0;

export function duration(seconds) {
  if (seconds < 0.95) {
    return interpolate(gettext("%(number)s ms"), { number: Math.round(seconds * 1000) });
  }
  if (seconds < 10) return inSeconds(oneDigit(seconds));
  const [minutes, rest] = [Math.floor(Math.round(seconds) / 60), Math.round(seconds) % 60];
  if (!minutes) return inSeconds(rest);
  return interpolate(gettext("%(minutes)s min %(seconds)s s"), { minutes, seconds: rest });
}

const inSeconds = (number) => interpolate(gettext("%(number)s s"), { number });

/** Show `label` and the seconds since `since` (of performance.now()) until it ends. */
export function run(element, label, since) {
  running.set(element, { label, since });
  show(element, label, since);
  timer ||= setInterval(tick, 1000);
}

/** The start time of this element's label; undefined if it has none. */
export function sinceOf(element) {
  return running.get(element)?.since;
}

/**
 * A time of the server's clock, in seconds since 1970, as one of performance.now(). The
 * page says what the server's clock showed: the reader's own may be wrong.
 */
export function sinceServer(seconds) {
  const now = performance.now();
  const shown = Number(document.getElementById("conversation")?.dataset.now);
  if (!seconds || !shown) return now;
  const [{ responseStart }] = performance.getEntriesByType("navigation");
  return Math.min(now, responseStart + (seconds - shown) * 1000);
}

export function end(element, text) {
  running.delete(element);
  element.textContent = text;
}

function tick() {
  for (const [element, { label, since }] of running) {
    if (element.isConnected) show(element, label, since);
    else running.delete(element);
  }
  if (!running.size) timer = clearInterval(timer) ?? 0;
}

function show(element, label, since) {
  const seconds = Math.floor((performance.now() - since) / 1000);
  const time = seconds < 1 ? "" : seconds < 10 ? inSeconds(seconds) : duration(seconds);
  element.textContent = [label, time].filter(Boolean).join(" ");
}
