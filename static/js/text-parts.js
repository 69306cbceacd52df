// Loads further parts of a message that is too long for one page, when they are near.

import { fetched, focusOn, openInstead } from "./dom.js";

const LINK = "[data-next-part]";
const NEAR = "1500px"; // below the visible part
const AGAIN = 5000; // milliseconds after a part that did not come
const MOST = 100; // parts that are loaded at once

let observer = null; // made with the first link

function observe(link) {
  observer ??= new IntersectionObserver(addNear, { rootMargin: `0px 0px ${NEAR}` });
  observer.observe(link);
}

function addNear(entries) {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) add(target, { isAsked: false });
  }
}

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
  for (const link of links) observe(link);
}

/** Loads further parts of the messages of `root`; a link is left for the rest. */
export async function loadParts(root) {
  for (let count = 0; count < MOST; count += 1) {
    const link = root.querySelector(LINK);
    if (!link) return;
    await replace(link);
  }
}

/** Loads the rest of a table with which the loaded parts of a message end. */
export async function loadRows(table) {
  for (let count = 0; count < MOST; count += 1) {
    let link = table.closest(".said");
    while (link?.matches(".said")) link = link.nextElementSibling;
    if (!link?.matches(LINK) || tableBefore(link) !== table) return;
    await replace(link);
  }
}

/** Replaces the link by the next part. If that fails, a link that was clicked opens a
 * page, and another one can be clicked. */
async function add(link, { isAsked = true } = {}) {
  observer?.unobserve(link);
  if (link.ariaDisabled) return;
  link.ariaDisabled = "true";
  try {
    const part = await replace(link);
    if (isAsked) focusOn(part);
  } catch (error) {
    link.ariaDisabled = null;
    if (isAsked) openInstead(link.href, error);
    else setTimeout(() => observe(link), AGAIN);
  }
}

/** The first element of what is new: that part, or a row of the table that goes on in it. */
async function replace(link) {
  const page = await fetched(link.href, "main");
  const part = page.querySelector(".said");
  const next = page.querySelector(LINK);
  if (next) next.href = new URL(next.getAttribute("href"), link.href).href;
  const rows = rowsThatGoOn(part);
  const table = rows.length > 0 && tableBefore(link);
  if (!link.parentNode) return part; // another request has replaced it meanwhile
  if (table) addRows(table, rows);
  link.replaceWith(part, ...(next ? [next] : []));
  return table ? rows[0] : part;
}

function tableBefore(link) {
  let said = link.previousElementSibling;
  while (said?.matches(".said:not(:has(table))")) said = said.previousElementSibling;
  return said?.matches(".said") ? [...said.querySelectorAll("table")].at(-1) : null;
}

/** The server repeats the head of a table in each part. */
function rowsThatGoOn(part) {
  const table = part.querySelector(":scope > .goes-on:first-child > .table-scroll:first-child > table");
  return table ? [...table.tBodies[0].rows] : [];
}

function addRows(table, rows) {
  rows[0].closest(".table-scroll").remove();
  table.tBodies[0].append(...rows);
}
