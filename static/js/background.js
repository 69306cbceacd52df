// The strip of calls that go on in the background, as the server has it.

import { $, fetched } from "./dom.js";
import { run } from "./elapsed.js";

const LATER = 1000; // milliseconds; several changes at once make one request

let timer = 0;

export function showBackground() {
  for (const time of document.querySelectorAll("#background [data-elapsed]")) {
    run(time, "", performance.now() - time.dataset.elapsed * 1000);
  }
}

export function refreshBackground() {
  timer ||= setTimeout(refresh, LATER);
}

async function refresh() {
  timer = 0;
  if (!navigator.onLine) return; // asked again when we are connected
  const strip = $("#background");
  try {
    strip.replaceWith(await fetched(strip.dataset.url, "#background"));
    showBackground();
  } catch {
    // The next change tries again.
  }
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
