// The strip of calls that go on in the background, as the server has it. While it shows
// any it is asked for again, so that how far they are is seen to move.

import { $, fetched } from "./dom.js";
import { run } from "./elapsed.js";

const LATER = 1000; // milliseconds; several changes at once make one request
const AGAIN = 3000; // milliseconds

let timer = 0;
let onOver = () => {};

/** `isOver` is told whenever calls that were shown are shown no more. */
export function watchBackground(isOver) {
  onOver = isOver;
  showBackground();
}

export function refreshBackground() {
  clearTimeout(timer);
  timer = setTimeout(refresh, LATER);
}

function showBackground() {
  const times = document.querySelectorAll(
    "#background [data-elapsed], .called [data-elapsed]",
  );
  for (const time of times) {
    run(time, "", performance.now() - time.dataset.elapsed * 1000);
    delete time.dataset.elapsed;
  }
  clearTimeout(timer);
  if (calls().length) timer = setTimeout(refresh, AGAIN);
}

const calls = () =>
  [...document.querySelectorAll("#background [data-call]")].map((li) => li.dataset.call);

async function refresh() {
  if (!navigator.onLine) return; // asked again when we are connected
  const strip = $("#background");
  const before = calls();
  try {
    const fresh = await fetched(strip.dataset.url, "#background");
    const focused = strip.contains(document.activeElement);
    strip.replaceWith(fresh);
    if (focused) fresh.querySelector("button:enabled")?.focus();
    showBackground();
  } catch {
    timer = setTimeout(refresh, AGAIN);
    return;
  }
  const now = new Set(calls());
  if (before.some((call) => !now.has(call))) onOver();
}

export async function cancelCall(button) {
  button.disabled = true;
  const body = new FormData();
  body.set("csrfmiddlewaretoken", $("#composer [name=csrfmiddlewaretoken]").value);
  try {
    await fetch(button.formAction, { method: "POST", body, redirect: "manual" });
  } catch {
    button.disabled = false;
  }
  refreshBackground();
}
