// Keeps the page at the end while an answer grows, unless the reader has scrolled up.

import { $ } from "./dom.js";

const WELCOME = "#welcome:not([hidden])";
const NEAR = 96; // pixels from the end that count as being there

// While the page follows, the browser must not move it too: it holds the visible part where
// something above it changes its height, which would look like a reader who scrolls up.
const FOLLOWING = "is-following";

let isFollowing = true;
let lastTop = 0;
let known = 0; // turns that the reader has been at the end of

export function keepAtEnd() {
  const jump = $("#jump");
  lastTop = scrollY;
  addEventListener("scroll", () => onScroll(jump), { passive: true });
  new ResizeObserver(() => (isFollowing ? toEnd() : show(jump))).observe(
    $("#conversation"),
  );
  jump.addEventListener("click", (event) => {
    event.preventDefault();
    follow(true);
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    scrollTo({ top: document.body.scrollHeight, behavior: isCalm ? "auto" : "smooth" });
  });
  follow(isAtEnd());
  known = document.querySelectorAll("#transcript > .turn:not([hidden])").length;
}

/** Scrolls to the end and stays there, for example after sending. */
export function toEnd() {
  follow(true);
  scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  lastTop = scrollY;
}

/** Changes the page above the visible part without moving that part. */
export function keepingPlace(anchor, change) {
  const before = anchor.getBoundingClientRect().top;
  change();
  scrollBy({ top: anchor.getBoundingClientRect().top - before, behavior: "instant" });
  lastTop = scrollY;
}

function follow(value) {
  isFollowing = value;
  document.body.classList.toggle(FOLLOWING, value);
}

function onScroll(jump) {
  // Growing content moves the end away; only scrolling up leaves the end.
  if (isAtEnd()) follow(true);
  else if (scrollY < lastTop) follow(false);
  lastTop = scrollY;
  show(jump);
}

function show(jump) {
  jump.hidden = isFollowing || isAtEnd() || $(WELCOME) !== null;
  const turns = document.querySelectorAll("#transcript > .turn:not([hidden])").length;
  if (jump.hidden) known = turns;
  const fresh = Math.max(0, turns - known);
  const label = $('[data-slot="new"]', jump);
  label.hidden = !fresh;
  label.textContent = String(fresh);
}

function isAtEnd() {
  const { scrollHeight } = document.documentElement;
  return scrollHeight - innerHeight - scrollY < NEAR;
}
