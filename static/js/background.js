// Strip of the calls that run in the background, as the server renders it. While it shows
// calls, it is fetched again at intervals to update their progress.

import { $, fetched } from "./dom.js";
import { run } from "./elapsed.js";

const LATER = 1000; // milliseconds; several changes at once make one request
const AGAIN = 3000; // milliseconds

let timer = 0;
let onRefresh = () => {};

/** Calls `onCalls` after each refresh with the number of running calls by their turn. */
export function watchBackground(onCalls) {
  onRefresh = onCalls;
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
  if (countByTurn().size) timer = setTimeout(refresh, AGAIN);
}

function countByTurn() {
  const counts = new Map();
  for (const { dataset } of document.querySelectorAll("#background [data-turn]")) {
    counts.set(dataset.turn, (counts.get(dataset.turn) ?? 0) + 1);
  }
  return counts;
}

async function refresh() {
  if (!navigator.onLine) return; // refreshed when the connection is back
  const strip = $("#background");
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
  onRefresh(countByTurn());
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
