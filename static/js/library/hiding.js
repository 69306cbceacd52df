// Whether a wide page shows the sidebar. The browser remembers it, and static/js/boot.js
// applies it to the next page before that is drawn.

const KEY = "parley:sidebar";
const CLASS = "has-no-sidebar";

export function hideSidebar(isHidden = !isSidebarHidden()) {
  document.documentElement.classList.toggle(CLASS, isHidden);
  try {
    if (isHidden) localStorage.setItem(KEY, "hidden");
    else localStorage.removeItem(KEY);
  } catch {
    // No storage available: it is as before on the next page.
  }
}

/** On this page only. */
export function showSidebar() {
  document.documentElement.classList.remove(CLASS);
}

const isSidebarHidden = () => document.documentElement.classList.contains(CLASS);
