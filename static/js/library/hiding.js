// Whether a wide page shows the sidebar. The browser remembers it, and static/js/boot.js
// applies it to the next page before that is drawn.

import { local } from "../stored.js";

const KEY = "parley:sidebar";
const CLASS = "has-no-sidebar";

export function hideSidebar(isHidden = !isSidebarHidden()) {
  document.documentElement.classList.toggle(CLASS, isHidden);
  local.set(KEY, isHidden ? "hidden" : "");
}

/** On this page only. */
export function showSidebar() {
  document.documentElement.classList.remove(CLASS);
}

const isSidebarHidden = () => document.documentElement.classList.contains(CLASS);
