// The branch of the conversation that this page shows, and how it follows the server.
//
// Another tab may look at another branch. A turn is added here only if it continues the
// branch shown here; other changes show in the counters of versions.

import { SignedOut, announce, fetched } from "../dom.js";
import { replaceEarlier } from "../older-messages.js";
import { UNFINISHED } from "../turn-state.js";

const FIRST_PAUSE = 3000; // milliseconds after a request that failed; the next is longer
const LONGEST_PAUSE = 60_000;

/** Whether another request may have another answer. */
const mayPass = ({ status }) => status === 0 || status === 429 || status >= 500;

export class Branch {
  #page;
  #transcript;
  #turns;
  #follow;
  #lastChange = Promise.resolve();

  /** `follow(turnId)` subscribes to the events of a turn that was added. */
  constructor({ page, transcript, turns, follow }) {
    this.#page = page;
    this.#transcript = transcript;
    this.#turns = turns;
    this.#follow = follow;
  }

  /** Id of the last turn shown; of answers to compare, of the one to go on with. */
  get last() {
    const chosen = this.#transcript.querySelector(".is-chosen .turn[data-turn]");
    const turns = this.#transcript.querySelectorAll(".turn[data-turn]");
    return (chosen ?? turns[turns.length - 1])?.dataset.turn;
  }

  /** Adds a turn of another tab or program, if it belongs to this branch. Tries until the
   *  server has answered: no further event announces the turn. `onDelay` is called before
   *  each pause. */
  async add(turnId, onDelay = () => {}) {
    for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      try {
        return await this.#fetch(turnId);
      } catch (error) {
        if (error instanceof SignedOut) return;
        if (!mayPass(error) && error.status) return; // it is gone, or refused
        if (!mayPass(error)) throw error; // a fault of this page
      }
      onDelay();
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  async #fetch(turnId) {
    if (this.#turns.has(turnId)) return;
    const article = await fetched(`${this.#page}turns/${turnId}/`, ".turn");
    if (this.#turns.has(turnId)) return;
    if (article.dataset.parent !== (this.last ?? "")) return this.sync();
    this.#add(turnId, article);
  }

  /** A finished turn has no more events. */
  #add(turnId, article) {
    const isRunning = UNFINISHED.includes(article.dataset.status);
    this.#turns.addForeign(turnId, article);
    if (isRunning) this.#follow(turnId);
  }

  /** Shows the branch as the server has it now. */
  sync() {
    return this.#afterOthers(() => this.#show(this.last ? `?branch=${this.last}` : ""));
  }

  /** Shows the branch that the user has chosen on the server. */
  showChosen() {
    return this.#afterOthers(() => this.#show(""));
  }

  /** One change at a time: a page fetched before a choice must not undo it. */
  #afterOthers(act) {
    const done = this.#lastChange.then(act);
    this.#lastChange = done.catch(() => {});
    return done;
  }

  async #show(query) {
    const shownBefore = new Set(idsOf(this.#transcript));
    const fresh = await fetched(this.#page + query, "#transcript");
    if (isComparison(fresh) || isComparison(this.#transcript)) {
      if (idsOf(fresh).join() !== idsOf(this.#transcript).join()) location.reload();
      return;
    }
    const ids = idsOf(fresh);
    this.#removeOthers(ids, shownBefore);
    if (!ids.some((id) => shownBefore.has(id))) replaceEarlier(fresh, this.#transcript);
    for (const article of [...fresh.querySelectorAll(".turn[data-turn]")]) {
      const id = article.dataset.turn;
      const old = document.getElementById(`turn-${id}`);
      if (old) copySwitch(article, old);
      else this.#add(id, article);
    }
  }

  /**
   * Removes the turns behind the first one that the server shows, except its own, and
   * those that were added while it answered, of which it could not know.
   */
  #removeOthers(ids, shownBefore) {
    const known = new Set(ids);
    const shown = [...this.#transcript.querySelectorAll(".turn[data-turn]")];
    const first = shown.findIndex(({ dataset }) => known.has(dataset.turn));
    for (const { dataset } of shown.slice(Math.max(first, 0))) {
      const isGone = shownBefore.has(dataset.turn) && !known.has(dataset.turn);
      if (isGone) this.#turns.remove(dataset.turn);
    }
  }

  /** Focuses the switch of a version that was chosen, and announces its number. */
  focus(turnId) {
    const group = document.querySelector(`#turn-${CSS.escape(turnId)} .branch-switch`);
    group?.querySelector("button:not(:disabled)")?.focus({ preventScroll: true });
    if (group) announce(group.textContent.trim().replace(/\s+/g, " "));
  }
}

const isComparison = (root) => root.querySelector(".comparison") !== null;

const idsOf = (root) =>
  [...root.querySelectorAll(".turn[data-turn]")].map(({ dataset }) => dataset.turn);

/** Takes over the counter of versions, which another tab may have changed. */
function copySwitch(from, to) {
  const fresh = from.querySelector(".branch-switch");
  const old = to.querySelector(".branch-switch");
  if (old?.isEqualNode(fresh) || (!old && !fresh)) return;
  if (old?.contains(document.activeElement)) return; // the focus stays
  old?.remove();
  if (fresh) to.querySelector(".answer").before(fresh);
}
