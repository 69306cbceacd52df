// The gauge of the model's context window, as the server renders it.

import { $, fetched } from "./dom.js";

/** Fetches the gauge again after a turn has ended. */
export async function refreshContext() {
  const gauge = $("#context");
  if (!gauge?.dataset.url || !navigator.onLine) return;
  try {
    gauge.replaceWith(await fetched(gauge.dataset.url, "#context"));
  } catch {
    // The next turn tries again.
  }
}
