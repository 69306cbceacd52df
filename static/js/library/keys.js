// Keyboard shortcuts of the library: the same keys as on the chat page.

import { $, announce } from "../dom.js";
import { listenForShortcuts, showList } from "../people/shortcuts.js";

listenForShortcuts($("#people").dataset, {
  help: (_, keys) => showList(keys),
  new: () => location.assign("/"),
  search: () => $(".filters [name=q]").focus(),
  previous: ({ noChat }) => focusBeside(-1, noChat),
  next: ({ noChat }) => focusBeside(1, noChat),
});

/** Moves the focus between the conversations that were found. */
function focusBeside(step, noChat) {
  const links = [...document.querySelectorAll(".is-found")];
  const row = document.activeElement.closest(".found-list > li");
  const current = links.findIndex((link) => row?.contains(link));
  const target = links[current < 0 ? 0 : current + step];
  if (target) target.focus();
  else announce(noChat);
}
