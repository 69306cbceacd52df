// Keyboard shortcuts of the library: the same keys as on the chat page.

import { $ } from "../dom.js";
import { listenForShortcuts, showList } from "../people/shortcuts.js";

listenForShortcuts($("#people").dataset, {
  help: (_, keys) => showList(keys),
  new: () => location.assign("/"),
  search: () => $(".filters [name=q]").focus(),
  previous: () => focusBeside(-1),
  next: () => focusBeside(1),
});

/** Moves the focus between the conversations that were found. */
function focusBeside(step) {
  const links = [...document.querySelectorAll(".is-found")];
  const row = document.activeElement.closest(".found-list > li");
  const current = links.findIndex((link) => row?.contains(link));
  links[current < 0 ? 0 : current + step]?.focus();
}
