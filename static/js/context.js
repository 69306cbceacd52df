// The gauge of the model's context window, and what is left of the user's limits, as the
// server renders them.

import { $, fetched } from "./dom.js";

/** Fetches both again after a turn has ended. */
export async function refreshContext() {
  await Promise.all([refresh("#context"), refresh("#limits")]);
}

async function refresh(selector) {
  const shown = $(selector);
  if (!shown?.dataset.url || !navigator.onLine) return;
  try {
    shown.replaceWith(await fetched(shown.dataset.url, selector));
  } catch {
    // The next turn tries again.
  }
}
