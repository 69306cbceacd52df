// Earlier messages: loaded when their reader comes near, or follows their link.

import { $, fetched, openInstead } from "./dom.js";
import { keepingPlace } from "./scroll.js";

const LINK = "[data-earlier]";
const NEAR = "1500px"; // above the visible part

let prepare = () => {};

const observer = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) showEarlier(target, { isAsked: false });
    }
  },
  { rootMargin: `${NEAR} 0px 0px` },
);

/** Before they are shown, messages are given to `prepared`. */
export function watchEarlier(prepared) {
  prepare = prepared;
  const link = $(LINK);
  if (link) observer.observe(link);
}

/** Takes over the link of another rendering, where none of its messages is shown here. */
export function replaceEarlier(from, to) {
  $(LINK, to)?.remove();
  const link = $(LINK, from);
  if (!link) return;
  to.prepend(link);
  observer.observe(link);
}

/** Replaces the link by the messages, without moving the page. */
export async function showEarlier(link, { isAsked = true } = {}) {
  observer.unobserve(link);
  if (link.ariaDisabled) return;
  link.ariaDisabled = "true";
  try {
    const rendered = await fetched(link.href, "#transcript");
    const older = [...rendered.children].filter((child) => !child.matches(".to-latest"));
    prepare(rendered);
    keepingPlace(link.nextElementSibling, () => link.replaceWith(...older));
    if (older[0]?.matches(LINK)) observer.observe(older[0]);
  } catch (error) {
    link.ariaDisabled = null;
    if (isAsked) openInstead(link.href, error);
  }
}
