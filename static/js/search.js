// The sidebar's search: while somebody types, the list becomes what is found.

import { $, say } from "./dom.js";

const PAUSE = 200; // milliseconds without a key before we look

/** `refresh` renders the list anew, for what the page's address asks for. */
export function searchOnInput(refresh) {
  const field = $("#search");
  let timer = 0;

  async function search() {
    clearTimeout(timer);
    note(field.value.trim());
    await refresh();
    if (field.value.trim()) say($("#list .list-label").textContent.trim());
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

/** In the address: a reload finds it again. */
function note(query) {
  const url = new URL(location.href);
  url.searchParams.delete("from");
  if (query) url.searchParams.set("q", query);
  else url.searchParams.delete("q");
  history.replaceState(null, "", url);
}
