// Stay at the end while an answer grows, but only for who is at the end.

import { $ } from "./dom.js";

const NEAR = 96; // pixels from the end that count as being there

let isFollowing = true;
let lastTop = 0;

export function keepAtEnd() {
  const jump = $("#jump");
  lastTop = scrollY;
  addEventListener("scroll", () => onScroll(jump), { passive: true });
  new ResizeObserver(() => (isFollowing ? toEnd() : show(jump))).observe(
    $("#conversation"),
  );
  jump.addEventListener("click", (event) => {
    event.preventDefault();
    isFollowing = true;
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    scrollTo({ top: document.body.scrollHeight, behavior: isCalm ? "auto" : "smooth" });
  });
  isFollowing = isAtEnd();
}

/** As after sending: what comes next is wanted in sight. */
export function toEnd() {
  isFollowing = true;
  scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  lastTop = scrollY;
}

/** Change the page above what is read without moving it. */
export function keepingPlace(anchor, change) {
  const before = anchor.getBoundingClientRect().top;
  change();
  scrollBy({ top: anchor.getBoundingClientRect().top - before, behavior: "instant" });
  lastTop = scrollY;
}

function onScroll(jump) {
  // Content that grows moves the end away from us; only scrolling up means to stay.
  if (isAtEnd()) isFollowing = true;
  else if (scrollY < lastTop) isFollowing = false;
  lastTop = scrollY;
  show(jump);
}

function show(jump) {
  jump.hidden = isFollowing || isAtEnd();
}

function isAtEnd() {
  const { scrollHeight } = document.documentElement;
  return scrollHeight - innerHeight - scrollY < NEAR;
}
