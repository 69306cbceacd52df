// The sidebar's list: shows more of it when the reader scrolls to its end, and remembers
// whether the folders are open.

import { hideSidebar } from "./hiding.js";
import { renew } from "./renew.js";

const list = document.getElementById("list");
const AHEAD = "400px"; // begin before the end is visible
const KEY = "parley:folders";

let isLoading = false;

const seen = new IntersectionObserver(
  (entries) => {
    if (entries.some((entry) => entry.isIntersecting)) more();
  },
  { root: list, rootMargin: AHEAD },
);

/** Renders a longer list in place, as the link "Show more" would. */
async function more() {
  const link = list.querySelector("[data-more]");
  if (!link || isLoading || document.activeElement === link) return;
  isLoading = true;
  const url = new URL(link.href, location.href);
  const query = new URLSearchParams(url.search);
  const { search } = location;
  query.set("current", document.getElementById("conversation").dataset.conversation ?? "");
  try {
    const response = await fetch(`${list.dataset.url}?${query}`, {
      headers: { Accept: "text/html" },
    });
    if (!response.ok || response.redirected) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (!link.isConnected || location.search !== search) return; // another list is shown
    note(query);
    renew(list, document.adoptNode(page.body));
    watch(); // the link may be the same, and in sight all the time
  } catch {
    // The link stays and works.
  } finally {
    isLoading = false;
  }
}

/** Stores the length in the address, so that later renderings keep it. */
function note(query) {
  const url = new URL(location.href);
  url.searchParams.set("chats", query.get("chats"));
  history.replaceState(history.state, "", url);
}

function watch() {
  seen.disconnect();
  const link = list.querySelector("[data-more]");
  if (link) seen.observe(link);
  const folders = list.querySelector("[data-folders]");
  if (folders && localStorage.getItem(KEY) === "closed") folders.open = false;
}

list.addEventListener(
  "toggle",
  (event) => {
    if (!event.target.matches("[data-folders]")) return;
    localStorage.setItem(KEY, event.target.open ? "open" : "closed");
  },
  true,
);

/** Hides or shows the list on a wide page, and moves the focus to the button in sight. */
document.addEventListener("click", ({ target }) => {
  if (!target.closest?.("[data-sidebar]")) return;
  hideSidebar();
  const buttons = [...document.querySelectorAll("[data-sidebar]")];
  buttons.find((button) => button.checkVisibility())?.focus();
});
new MutationObserver(watch).observe(list, { childList: true });
watch();
