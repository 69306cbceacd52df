// Further parts of a message that is too long for one page, put below the part before.

import { fetched, focusOn } from "./dom.js";

const LINK = "[data-next-part]";

export function addPartsOnClick() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest(LINK);
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    add(link);
  });
}

/** In the place of the link; where it cannot be had, the link opens a page of its own. */
async function add(link) {
  if (link.ariaDisabled) return;
  link.ariaDisabled = "true";
  try {
    const page = await fetched(link.href, "main");
    const part = page.querySelector(".said");
    const next = page.querySelector(LINK);
    if (next) next.href = new URL(next.getAttribute("href"), link.href).href;
    link.replaceWith(part, ...(next ? [next] : []));
    focusOn(part);
  } catch {
    location.assign(link.href);
  }
}
