// The turns of a shared page, which the server renders again whenever one has changed.
//
// A reader sees more than the rendering: formulas are typeset, code has buttons. So of a
// turn only those blocks are replaced that differ from its rendering before; while an
// answer grows, that is its last one.

import { $ } from "../dom.js";
import { GROWING } from "../reading/complete.js";
import { localiseTimes } from "../times.js";

const CONTAINERS = ".turn, .answer, .prose";
const LAST_BLOCK = ".answer > .prose:last-child > :last-child";

const renderings = new Map(); // turn id -> its last rendering
const shownAs = new WeakMap(); // element of a rendering -> its element in the page

/** The element that shows `fresh`, a child of the transcript as it is rendered now. */
export function showTurn(fresh) {
  const { id, dataset } = fresh;
  const shown = id && document.getElementById(id);
  if (shown?.dataset.version === dataset.version) return shown;
  prepare(fresh);
  const before = renderings.get(id);
  renderings.set(id, fresh);
  const now = shown && before ? shown : adopted(fresh);
  const open = shown ? openDetails(shown) : [];
  if (now === shown) update(before, fresh);
  Object.assign(now.dataset, dataset);
  for (const key of open) {
    const same = $(`details[data-key="${CSS.escape(key)}"]`, now);
    if (same) same.open = true;
  }
  return now;
}

const openDetails = (root) =>
  [...root.querySelectorAll("details[data-key][open]")].map(({ dataset }) => dataset.key);

/** Marks the block that grows, which differs once it is complete and can be improved;
 *  a formula in any other is complete. */
function prepare(fresh) {
  for (const root of [fresh, ...fresh.querySelectorAll(CONTAINERS)]) {
    for (const node of [...root.childNodes]) {
      if (node.nodeType === Node.TEXT_NODE && !node.data.trim()) node.remove();
    }
  }
  const growing = fresh.matches(GROWING) && $(LAST_BLOCK, fresh);
  if (growing) growing.dataset.grows = "";
  for (const formula of fresh.querySelectorAll(".math")) {
    if (!growing || !growing.contains(formula)) formula.dataset.whole = "";
  }
}

/** Shows `now` in the element that shows `before`. */
function update(before, now) {
  const shown = shownAs.get(before);
  shownAs.set(now, shown);
  const [olds, news] = [[...before.children], [...now.children]];
  let at = 0;
  for (; at < Math.min(olds.length, news.length); at += 1) {
    if (olds[at].isEqualNode(news[at])) news[at].replaceWith(olds[at]);
    else if (areAlike(olds[at], news[at])) update(olds[at], news[at]);
    else if (areSameCode(olds[at], news[at])) updateCode(olds[at], news[at]);
    else break;
  }
  if (at < olds.length) removeFrom(shown, shownAs.get(olds[at]));
  shown.append(...news.slice(at).map(adopted));
}

const areAlike = (old, fresh) =>
  fresh.matches(CONTAINERS) && old.tagName === fresh.tagName && old.className === fresh.className;

/** Whether it is a block of code that has grown, so that its buttons can stay. */
const areSameCode = (old, fresh) =>
  [old, fresh].every((each) => each.matches(".code")) &&
  old.firstElementChild.isEqualNode(fresh.firstElementChild);

/** What its reader has done with the block stays: lines wrapped, scrolled, focused. */
function updateCode(before, now) {
  const shown = shownAs.get(before);
  shownAs.set(now, shown);
  $("code", shown).replaceChildren(...document.importNode($("code", now), true).childNodes);
  if (!("grows" in now.dataset)) delete shown.dataset.grows;
}

/** Removes the child that is or contains `node`, and all behind it. */
function removeFrom(shown, node) {
  let child = [...shown.children].find((each) => each.contains(node));
  while (child) {
    const next = child.nextElementSibling;
    child.remove();
    child = next;
  }
}

function adopted(fresh) {
  const made = document.importNode(fresh, true);
  note(fresh, made);
  localiseTimes(made);
  return made;
}

function note(fresh, made) {
  shownAs.set(fresh, made);
  if (!fresh.matches(CONTAINERS)) return;
  for (const [at, child] of [...fresh.children].entries()) note(child, made.children[at]);
}
