// Keyboard shortcuts; the user's settings name the keys.

import { $, announce, cloned } from "../dom.js";
import { hideSidebar, showSidebar } from "../library/hiding.js";
import { quoteSelection } from "../reading/quote.js";

/** Show the list of shortcuts also while the reader types, when its usual key is text. */
const LIST_KEYS = ["Ctrl+/", "Meta+/"];

export function listenForShortcuts(dataset, acts = ACTS) {
  const keys = JSON.parse(dataset.shortcuts);
  if (!Object.keys(keys).length) return; // they are switched off
  const actions = new Map(Object.entries(keys).map(([name, key]) => [key, name]));
  actions.delete(""); // of actions without a key
  for (const key of LIST_KEYS) if (!actions.has(key)) actions.set(key, "help");
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || event.repeat) return;
    const act = acts[actions.get(nameOf(event))];
    if (!act || (isTyping(event) && !hasModifier(event))) return;
    if ($("dialog[open]")) return;
    event.preventDefault();
    act(dataset, keys);
  });
}

/** The key as settings write it; see conversations/models/shortcuts.py. */
export function nameOf(event) {
  const isCharacter = [...event.key].length === 1;
  const isLetter = event.key.toLowerCase() !== event.key.toUpperCase();
  // Shift is part of most other characters: "?" needs it on some keyboards only.
  const hasShift = event.shiftKey && (!isCharacter || isLetter);
  const modifiers = [
    event.ctrlKey && "Ctrl",
    event.altKey && "Alt",
    hasShift && "Shift",
    event.metaKey && "Meta",
  ];
  const key = isLetter && isCharacter ? event.key.toLowerCase() : event.key;
  return [...modifiers.filter(Boolean), key].join("+");
}

const hasModifier = ({ ctrlKey, altKey, metaKey }) => ctrlKey || altKey || metaKey;

const TYPED = "input:not([type=checkbox], [type=radio]), textarea, select, [role=option]";
const isTyping = ({ target }) => target.isContentEditable || target.closest?.(TYPED);

const ACTS = {
  help: (dataset, keys) => showList(keys),
  new: () => $(".new-chat").click(),
  search: () => {
    const sidebar = $("#sidebar");
    showSidebar();
    if (!sidebar.checkVisibility()) sidebar.showPopover();
    $("#search").focus();
  },
  focus: () => $("#text").focus(),
  stop: () => $("#stop").hidden || $("#stop").click(),
  copy: ({ nothingToCopy }) => {
    const button = [...document.querySelectorAll('[data-copy="answer"]')].at(-1);
    if (button) button.click();
    else announce(nothingToCopy);
  },
  quote: ({ nothingToQuote }) => {
    if (!quoteSelection()) announce(nothingToQuote);
  },
  sidebar: toggleSidebar,
  previous: ({ noChat }) => openBeside(-1, noChat),
  next: ({ noChat }) => openBeside(1, noChat),
};

export function showList(keys) {
  const list = cloned("shortcuts");
  for (const key of list.querySelectorAll("[data-key-of]")) {
    key.textContent = keys[key.dataset.keyOf] || "–";
  }
  const dialog = $("#dialog");
  dialog.replaceChildren(list);
  dialog.setAttribute("aria-label", $("h1", list).textContent);
  dialog.showModal();
}

/** Wide pages hide it by a class, narrow ones have it as a popover. */
function toggleSidebar() {
  const sidebar = $("#sidebar");
  if (getComputedStyle($(".bar [popovertarget=sidebar]")).display === "none") {
    hideSidebar();
  } else {
    sidebar.togglePopover();
  }
}

function openBeside(step, noChat) {
  const links = [...document.querySelectorAll("#list .row-link")];
  const current = links.findIndex((link) => link.hasAttribute("aria-current"));
  const target = links[current < 0 ? 0 : current + step];
  if (target) target.click();
  else announce(noChat);
}
