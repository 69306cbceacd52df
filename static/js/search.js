// Search in the sidebar: replaces the list by the results while the user types.

import { $, announce } from "./dom.js";

const PAUSE = 200; // milliseconds without a key before we look

/** `refresh` renders the list anew, for the query in the page's address. */
export function searchOnInput(refresh) {
  const field = $("#search");
  let timer = 0;

  async function search() {
    clearTimeout(timer);
    note(field.value.trim());
    await refresh();
    if (field.value.trim()) announce($("#list .list-label").textContent.trim());
  }

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, field.value ? PAUSE : 0);
  });
  field.form.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
}

/** Stores the query in the URL, so that a reload repeats the search. */
function note(query) {
  const url = new URL(location.href);
  url.searchParams.delete("from");
  if (query) url.searchParams.set("q", query);
  else url.searchParams.delete("q");
  history.replaceState(null, "", url);
}
