// Loads further parts of a message that is too long for one page, when they are near.

import { fetched, focusOn } from "./dom.js";

const LINK = "[data-next-part]";
const NEAR = "1500px"; // below the visible part
const AGAIN = 5000; // milliseconds after a part that did not come
const MOST = 100; // parts that are loaded at once

const observer = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) add(target, { isAsked: false });
    }
  },
  { rootMargin: `0px 0px ${NEAR}` },
);

export function addPartsOnClick() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest(LINK);
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    add(link);
  });
}

/** Loads the parts of `root`, or behind it, before their reader reaches the link. */
export function watchParts(root) {
  const links = root.matches(LINK) ? [root] : root.querySelectorAll(LINK);
  for (const link of links) observer.observe(link);
}

/** Loads further parts of `root`, which is not shown yet; a link is left for the rest. */
export async function loadParts(root) {
  for (let count = 0; count < MOST; count += 1) {
    const link = root.querySelector(LINK);
    if (!link) return;
    await replace(link);
  }
}

/** Replaces the link by the next part. If that fails, a link that was clicked opens a
 * page, and another one can be clicked. */
async function add(link, { isAsked = true } = {}) {
  observer.unobserve(link);
  if (link.ariaDisabled) return;
  link.ariaDisabled = "true";
  try {
    const part = await replace(link);
    if (isAsked) focusOn(part);
  } catch {
    link.ariaDisabled = null;
    if (isAsked) location.assign(link.href);
    else setTimeout(() => observer.observe(link), AGAIN);
  }
}

async function replace(link) {
  const page = await fetched(link.href, "main");
  const part = page.querySelector(".said");
  const next = page.querySelector(LINK);
  if (next) next.href = new URL(next.getAttribute("href"), link.href).href;
  link.replaceWith(part, ...(next ? [next] : []));
  return part;
}
