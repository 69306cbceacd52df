// The turns of the page that are under way: their events in, their view kept up.
//
// Events that come between two frames are taken in together. When a turn is over, the
// server's own rendering of it takes the place of ours.

import { cloned, fetched, focusOn, say, slot } from "./dom.js";
import { end, run } from "./elapsed.js";
import { filePiece } from "./readable.js";
import { UNFINISHED, apply, isOver, newTurn } from "./turn-state.js";
import { TurnView } from "./turn-view.js";

const RETRY_SWAP = 3000; // milliseconds
/** After these there may be more or fewer calls in the background. */
const IN_BACKGROUND = new Set(["parley:tool_call.accepted", "response.created"]);
const HIDDEN_FRAME = 250; // milliseconds; a hidden page is given no frames

class LiveTurn {
  state = newTurn();
  queue = [];
  view;

  constructor(id, article) {
    this.id = id;
    this.article = article;
    this.view = new TurnView(article);
  }

  takeIn() {
    if (this.queue.length && this.state.position === null) this.view.takeOver();
    for (const [event, position] of this.queue) apply(this.state, event, position);
    this.queue = [];
    this.view.update(this.state);
  }
}

export class LiveTurns {
  #turns = new Map(); // id -> LiveTurn
  #isScheduled = false;
  #page;
  #transcript;
  #onChange;
  #onBackground;

  constructor({ page, transcript, onChange, onBackground }) {
    this.#page = page;
    this.#transcript = transcript;
    this.#onChange = onChange;
    this.#onBackground = onBackground;
  }

  /** Ids of the turns that the server rendered unfinished, oldest first. */
  adopt() {
    for (const article of this.#transcript.querySelectorAll(".turn[data-turn]")) {
      if (!UNFINISHED.includes(article.dataset.status)) continue;
      this.#watch(article.dataset.turn, article);
      showElapsed(article);
    }
    return [...this.#turns.keys()];
  }

  has(turnId) {
    return document.getElementById(`turn-${turnId}`) !== null;
  }

  /** The oldest turn that is under way, or undefined. */
  get running() {
    const articles = this.#transcript.querySelectorAll(".turn[data-turn]");
    return [...articles].find((a) => this.#turns.has(a.dataset.turn))?.dataset.turn;
  }

  /** A message on its way, shown before the server knows of it. */
  begin(text, parts = []) {
    const article = cloned("turn");
    slot(article, "text").textContent = text;
    slot(article, "text").hidden = !text;
    slot(article, "files").append(...parts.map(filePiece));
    slot(article, "files").hidden = !parts.length;
    this.#transcript.append(article);
    return article;
  }

  accepted(article, turnId) {
    if (this.has(turnId)) return article.remove(); // a repeat of what is shown already
    article.id = `turn-${turnId}`;
    article.dataset.turn = turnId;
    const isFirst = this.running === undefined;
    slot(article, "remove").hidden = isFirst;
    this.#watch(turnId, article);
    end(slot(article, "phase"), isFirst ? "Connecting" : "Waiting for its turn");
    this.#onChange();
  }

  /** A turn that another tab or program has opened. */
  async addForeign(turnId) {
    if (this.has(turnId)) return;
    const article = await fetched(`${this.#page}turns/${turnId}/`, ".turn");
    if (this.has(turnId)) return;
    this.#transcript.append(article);
    this.#watch(turnId, article);
    this.#onChange();
  }

  /** Shows what became of calls that went on in the background of finished turns. */
  renew() {
    const found = this.#transcript.querySelectorAll('.called[data-state="executing"]');
    for (const article of new Set([...found].map((card) => card.closest(".turn")))) {
      const id = article.dataset.turn;
      if (id && !this.#turns.has(id)) this.#swap({ id, article });
    }
  }

  stopping(turnId) {
    const line = this.#turns.get(turnId)?.article;
    if (line) end(slot(line, "phase"), "Stopping");
  }

  receive(turnId, event, position) {
    const turn = this.#turns.get(turnId);
    if (!turn) return;
    if (turn.state.position === null && !turn.queue.length) this.#started(turn);
    turn.queue.push([event, position]);
    announce(event);
    if (IN_BACKGROUND.has(event.type)) this.#onBackground();
    this.#schedule();
  }

  #watch(turnId, article) {
    this.#turns.set(turnId, new LiveTurn(turnId, article));
  }

  #started({ article }) {
    const remove = article.querySelector('.progress [data-action="stop"]');
    if (remove) remove.hidden = true;
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    if (document.hidden) setTimeout(() => this.#frame(), HIDDEN_FRAME);
    else requestAnimationFrame(() => this.#frame());
  }

  #frame() {
    this.#isScheduled = false;
    for (const turn of this.#turns.values()) {
      if (!turn.queue.length) continue;
      turn.takeIn();
      if (isOver(turn.state)) this.#finish(turn);
    }
  }

  #finish(turn) {
    this.#turns.delete(turn.id);
    this.#onChange();
    sayEnd(turn);
    this.#swap(turn);
  }

  async #swap({ id, article }) {
    let rendered;
    try {
      rendered = await fetched(`${this.#page}turns/${id}/`, ".turn");
    } catch {
      setTimeout(() => this.#swap({ id, article }), RETRY_SWAP);
      return;
    }
    await unselected(article);
    keepState(article, rendered);
    const hadFocus = article.contains(document.activeElement);
    article.replaceChildren(...rendered.children);
    if (hadFocus && document.activeElement === document.body) focusOn(article);
    article.dataset.status = rendered.dataset.status;
    article.hidden = rendered.hidden; // it came to nothing
    article.classList.remove("is-live");
    this.#onChange();
  }
}

/** What is being selected must not vanish under the hand. */
async function unselected(article) {
  const isSelected = () => {
    const selection = getSelection();
    return !selection.isCollapsed && selection.containsNode(article, true);
  };
  while (isSelected()) {
    await new Promise((resolve) => {
      document.addEventListener("selectionchange", resolve, { once: true });
    });
  }
}

/** What was open or focused stays so, and how long it thought stays said. */
function keepState(from, to) {
  const focused = document.activeElement.closest("summary")?.parentElement;
  for (const old of from.querySelectorAll("details[data-key]")) {
    const fresh = to.querySelector(`details[data-key="${old.dataset.key}"]`);
    if (!fresh) continue;
    fresh.open = old.open;
    if (old === focused) queueMicrotask(() => fresh.firstElementChild.focus());
    if (old.matches(".thought")) {
      slot(fresh, "label").textContent = slot(old, "label").textContent;
    }
  }
}

function showElapsed(article) {
  const line = article.querySelector(".progress [data-elapsed]");
  if (!line) return;
  run(line, line.textContent, performance.now() - line.dataset.elapsed * 1000);
}

function announce(event) {
  if (event.type === "response.created") say("The answer begins.");
  if (event.type === "parley:approval.requested") say("A decision of yours is needed.");
  if (event.type === "parley:tool_call.started") say(`Tool ${event.name} is running.`);
}

function sayEnd({ state, article }) {
  const words = slot(article, "answer").textContent.trim().split(/\s+/).length;
  if (state.status === "failed") {
    document.getElementById("alarm").textContent = state.error?.message ?? "It failed.";
  } else if (state.status === "cancelled") say("Stopped.");
  else say(words === 1 ? "Done, one word." : `Done, ${words} words.`);
}
