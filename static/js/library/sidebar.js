// The sidebar's list: shows more of it when the reader scrolls to its end, and remembers
// whether the folders are open.

import { hideSidebar } from "./hiding.js";
import { local } from "../stored.js";
import { renew } from "./renew.js";

const list = document.getElementById("list");
const AHEAD = "400px"; // begin before the end is visible
const AGAIN = 5000; // milliseconds after a request that failed
const KEY = "parley:folders";

let isLoading = false;

const seen = new IntersectionObserver(
  (entries) => {
    if (entries.some((entry) => entry.isIntersecting)) more();
  },
  { root: list, rootMargin: AHEAD },
);

/** Renders a longer list in place, as the link "Show more" would. The observer tells only
 *  changes, so whatever ends a request has it look at the link again. */
async function more() {
  const link = list.querySelector("[data-more]");
  if (!link || isLoading || document.activeElement === link) return;
  isLoading = true;
  const isShown = await showMore(link).catch(() => false);
  isLoading = false;
  if (isShown) watch(); // the link may be the same, and in sight all the time
  else setTimeout(watch, AGAIN); // until then the link works
}

/** False if the server has not sent the list. */
async function showMore(link) {
  const url = new URL(link.href, location.href);
  const query = new URLSearchParams(url.search);
  const { search } = location;
  query.set("current", document.getElementById("conversation").dataset.conversation ?? "");
  const headers = { Accept: "text/html" };
  const response = await fetch(`${list.dataset.url}?${query}`, { headers });
  if (!response.ok || response.redirected) return false;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (!link.isConnected || location.search !== search) return true; // another list is shown
  note(query);
  renew(list, document.adoptNode(page.body));
  return true;
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
  if (folders && local.get(KEY) === "closed") folders.open = false;
}

list.addEventListener("focusout", ({ target }) => target.matches("[data-more]") && watch());
list.addEventListener(
  "toggle",
  (event) => {
    if (!event.target.matches("[data-folders]")) return;
    local.set(KEY, event.target.open ? "open" : "closed");
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
