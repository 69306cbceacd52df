// Running turns of the page: receives their events and updates their views.
//
// Events that arrive between two frames are applied together, and shown in as many as it
// takes. When a turn ends, the server's rendering replaces the one made here.

import { cloned, fetched, focusOn, announce, slot } from "./dom.js";
import { end, run } from "./elapsed.js";
import { nextFrame } from "./frames.js";
import { filePiece } from "./readable.js";
import { loadParts } from "./text-parts.js";
import { gettext, interpolate, ngettext } from "./texts.js";
import { UNFINISHED, apply, isOver, newTurn } from "./turn-state.js";
import { TurnView } from "./turn-view.js";

const PAST = 1000; // milliseconds for what came before the page
const SLICE = 8; // milliseconds of a frame for the text of a turn
const RETRY_SWAP = 3000; // milliseconds; longer after each failure
const LONGEST_RETRY = 60_000;
const GONE = [403, 404]; // what no other request changes
const IN_BACKGROUND = ".called[data-background]"; // cards of calls that run there
/** Events that can change the number of background calls. */
const CHANGES_BACKGROUND = new Set(["parley:tool_call.accepted", "response.created"]);

class LiveTurn {
  state = newTurn();
  queue = [];
  isShown = true; // as far as it is known
  view;
  hasWaited = false; // in the list of waiting messages
  isNews = true; // false until what came before the page is applied
  past = 0; // the timer until then
  told = new Set(); // ids of its questions that the reader knows of

  constructor(id, article) {
    this.id = id;
    this.article = article;
    this.view = new TurnView(article);
  }

  takeIn() {
    if (this.queue.length && this.state.position === null) this.view.takeOver();
    for (const [event, position] of this.queue) apply(this.state, event, position);
    this.queue = [];
    this.isShown = this.view.update(this.state, performance.now() + SLICE);
  }
}

export class RunningTurns {
  #turns = new Map(); // id -> LiveTurn
  #renewing = new Set(); // ids of finished turns that are fetched again
  #isScheduled = false;
  #page;
  #transcript;
  #onChange;
  #onBackground;
  #onQueue;
  #onNews;

  constructor({ page, transcript, onChange, onBackground, onQueue, onNews }) {
    this.#page = page;
    this.#transcript = transcript;
    this.#onChange = onChange;
    this.#onBackground = onBackground;
    this.#onQueue = onQueue;
    this.#onNews = onNews;
  }

  /** Ids of the turns that the server rendered unfinished, oldest first. */
  adopt() {
    for (const article of this.#transcript.querySelectorAll(".turn[data-turn]")) {
      if (!UNFINISHED.includes(article.dataset.status)) continue;
      const { status, turn } = article.dataset;
      this.#watch(turn, article).isNews = status === "queued";
      showElapsed(article);
    }
    return [...this.#turns.keys()];
  }

  has(turnId) {
    return document.getElementById(`turn-${turnId}`) !== null;
  }

  /** The oldest running turn, or undefined. */
  get running() {
    const articles = this.#transcript.querySelectorAll(".turn[data-turn]");
    return [...articles].find((a) => this.#turns.has(a.dataset.turn))?.dataset.turn;
  }

  /** Ids of the oldest running turn and of those that run beside it, to be compared. */
  get runningTogether() {
    const { running } = this;
    const beside = document.getElementById(`turn-${running}`)?.closest(".comparison");
    if (!beside) return running ? [running] : [];
    const ids = [...beside.querySelectorAll(".turn[data-turn]")].map(({ dataset }) => dataset.turn);
    return ids.filter((id) => this.#turns.has(id));
  }

  /** Shows a message before the server has acknowledged it; hidden if it `waits`. */
  begin(text, parts = [], waits = false) {
    const article = cloned("turn");
    article.hidden = waits;
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
    end(slot(article, "phase"), isFirst ? gettext("Connecting") : gettext("Waiting for its turn"));
    this.#onChange();
  }

  /** Hides the turns whose messages wait, `{id, text}` in order, until they begin: the
   *  list above the box shows them. */
  showWaiting(messages) {
    for (const { article, hasWaited } of this.#turns.values()) {
      const isLost = article.hidden && article.dataset.status === "queued";
      if (isLost && !hasWaited) article.hidden = false;
    }
    for (const { id, text } of messages) {
      const turn = this.#turns.get(id);
      if (!turn || turn.state.position !== null) continue;
      turn.hasWaited = true;
      turn.article.hidden = true;
      this.#transcript.append(turn.article); // in the order in which they will run
      const words = turn.article.querySelector(".asked-text");
      if (words && text !== null) words.textContent = text;
    }
  }

  /** Adds a turn that another tab or program has opened, as the server renders it. */
  addForeign(turnId, article) {
    this.#transcript.append(article);
    if (UNFINISHED.includes(article.dataset.status)) this.#watch(turnId, article);
    this.#onChange();
  }

  /** Removes a turn of another branch. */
  remove(turnId) {
    this.#turns.delete(turnId);
    document.getElementById(`turn-${turnId}`)?.remove();
    this.#onChange();
  }

  /**
   * Updates the finished turns that show more background calls than run; `running` has
   * their number by turn. Returns whether there are such turns.
   */
  renew(running) {
    const cards = this.#transcript.querySelectorAll(IN_BACKGROUND);
    const articles = new Set([...cards].map((card) => card.closest(".turn[data-turn]")));
    const outdated = [...articles].filter((article) => this.#isOutdated(article, running));
    for (const article of outdated) this.#renew(article);
    return outdated.length > 0;
  }

  #isOutdated(article, running) {
    const { turn: id } = article.dataset;
    const shown = article.querySelectorAll(IN_BACKGROUND).length;
    const isFinished = !this.#turns.has(id) && !this.#renewing.has(id);
    return isFinished && shown > (running.get(id) ?? 0);
  }

  async #renew(article) {
    const { turn: id } = article.dataset;
    this.#renewing.add(id);
    await this.#swap({ id, article });
    this.#renewing.delete(id);
  }

  stopping(turnId) {
    const line = this.#turns.get(turnId)?.article;
    if (line) end(slot(line, "phase"), gettext("Stopping"));
  }

  /** The server has refused to stop it: its line says again what it does. */
  goesOn(turnId) {
    const turn = this.#turns.get(turnId);
    if (!turn || turn.state.position === null) return;
    turn.view.forgetPhase();
    turn.isShown = false;
    this.#schedule();
  }

  receive(turnId, event, position) {
    const turn = this.#turns.get(turnId);
    if (!turn) return;
    if (!position) return this.#remove(turn); // the error of a turn that was deleted
    if (turn.state.position === null && !turn.queue.length) this.#started(turn);
    turn.queue.push([event, position]);
    this.#schedule();
    if (isSteering(event)) this.#onQueue();
    if (CHANGES_BACKGROUND.has(event.type)) this.#onBackground();
  }

  #watch(turnId, article) {
    const turn = new LiveTurn(turnId, article);
    this.#turns.set(turnId, turn);
    return turn;
  }

  #started({ article }) {
    if (article.hidden) this.#onQueue();
    article.hidden = false;
    const remove = article.querySelector('.progress [data-action="stop"]');
    if (remove) remove.hidden = true;
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    nextFrame(() => this.#frame());
  }

  #frame() {
    this.#isScheduled = false;
    for (const turn of this.#turns.values()) {
      if (!turn.queue.length && turn.isShown) continue;
      const types = turn.queue.map(([{ type }]) => type);
      takeIn(turn);
      this.#tell(turn, types);
      if (!turn.isShown) this.#schedule();
      else if (isOver(turn.state)) this.#finish(turn);
    }
  }

  /** Events of these types have been applied. What is over by now is no news. */
  #tell(turn, types) {
    if (!types.length) return;
    if (!turn.isNews) {
      turn.past ||= setTimeout(() => {
        turn.isNews = true;
        if (this.#turns.has(turn.id)) this.#tell(turn, ["parley:tool_call.started"]);
      }, PAST);
      return;
    }
    const { questions } = turn.state;
    const open = Object.keys(questions).filter((id) => questions[id] === "open");
    const isAsked = open.some((id) => !turn.told.has(id));
    turn.told = new Set([...turn.told, ...open]);
    announceAll(turn, types, isAsked);
    if (isAsked) this.#reportNews("waiting");
  }

  /** A sign that fails leaves the turn as it is. */
  #reportNews(what) {
    try {
      this.#onNews(what);
    } catch (error) {
      reportError(error);
    }
  }

  #finish(turn) {
    this.#turns.delete(turn.id);
    this.#onChange();
    sayEnd(turn);
    this.#swap(turn);
    if (turn.state.status !== "cancelled") {
      this.#onNews(turn.state.status === "failed" ? "failed" : "ready");
    }
  }

  #remove(turn) {
    this.#turns.delete(turn.id);
    turn.article.remove();
    this.#onChange();
    this.#onQueue();
  }

  /** `state` is that of a turn that has just ended. */
  async #swap({ id, article, state }, pause = RETRY_SWAP) {
    let rendered;
    try {
      rendered = await fetched(`${this.#page}turns/${id}/`, ".turn");
    } catch ({ status }) {
      if (GONE.includes(status)) return; // what was shown stays
      const longer = Math.min(2 * pause, LONGEST_RETRY);
      setTimeout(() => this.#swap({ id, article, state }, longer), pause);
      return;
    }
    if (state?.status === "failed") sayWhy(rendered);
    await loadParts(rendered).catch(() => {}); // else what was read would be missing
    await unselected(article);
    const focused = article.contains(document.activeElement) && document.activeElement;
    keepState(article, rendered);
    article.replaceChildren(...rendered.children);
    if (focused) restoreFocus(focused, article);
    article.dataset.status = rendered.dataset.status;
    article.hidden = rendered.hidden; // it came to nothing
    article.classList.remove("is-live");
    this.#onChange();
  }
}

/** One that fails stops no other. */
function takeIn(turn) {
  try {
    turn.takeIn();
  } catch (error) {
    turn.isShown = true;
    reportError(error);
  }
}

/** Waits until no text of the element is selected. */
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

/** Of what has moved or gone with its element. */
function restoreFocus(focused, article) {
  if (document.activeElement !== document.body) return;
  if (focused.isConnected) focused.focus({ preventScroll: true });
  else focusOn(article);
}

const messagesOf = (article) => [...article.querySelectorAll(".asked:not(.is-note)")];

/** Of open details, an editor, a comment and the focus. */
function keepState(from, to) {
  const messages = messagesOf(from);
  const edited = messages.findIndex((message) => message.matches(".is-edited"));
  if (edited >= 0) messagesOf(to)[edited]?.replaceWith(messages[edited]);
  const rating = from.querySelector(".rating-comment[open]")?.closest(".rating");
  if (rating) to.querySelector(".rating")?.replaceWith(rating); // it may have text to be saved
  const focused = document.activeElement.closest("summary")?.parentElement;
  for (const old of from.querySelectorAll("details[data-key]")) {
    const fresh = to.querySelector(`details[data-key="${old.dataset.key}"]`);
    if (!fresh) continue;
    fresh.open = old.open;
    if (old === focused) queueMicrotask(() => fresh.firstElementChild.focus());
  }
}

function showElapsed(article) {
  const line = article.querySelector(".progress [data-elapsed]");
  if (!line) return;
  run(line, line.textContent, performance.now() - line.dataset.elapsed * 1000);
}

/** Whether a person's message has joined the turn. */
function isSteering({ type, item }) {
  const isMessage = item?.role === "user" && !("parley:call_id" in item);
  return type === "response.output_item.done" && isMessage;
}

/** Once for a frame: each would interrupt the one before. */
function announceAll({ state }, types, isAsked) {
  const words = [];
  if (types.includes("response.created")) words.push(gettext("The answer begins."));
  if (isAsked) words.push(gettext("Your decision is needed."));
  if (types.includes("parley:tool_call.started")) words.push(toolsThatRun(state));
  if (words.some(Boolean)) announce(words.filter(Boolean).join(" "));
}

/** "" if all have ended already. */
function toolsThatRun({ calls }) {
  const running = Object.values(calls).filter(({ state }) => state === "executing");
  const names = new Set(running.map(({ name }) => name));
  if (names.size > 1) {
    return interpolate(gettext("Running %(tools)s"), { tools: [...names].join(", ") });
  }
  const [name] = names;
  return name ? interpolate(gettext("The tool %(name)s is running."), { name }) : "";
}

function sayEnd({ state, article }) {
  if (state.status === "cancelled") announce(gettext("Stopped."));
  else if (state.status !== "failed") {
    announce(doneInWords(countWords(slot(article, "answer"))));
  }
}

/** The reason in the reader's language, which the server's rendering has. */
function sayWhy(rendered) {
  const why = rendered.querySelector(".notice.is-error p")?.textContent.trim();
  document.getElementById("alarm").textContent = why || gettext("It failed.");
}

const countWords = ({ textContent }) => textContent.trim().split(/\s+/).length;

function doneInWords(count) {
  const words = ngettext("Done, %(count)s word.", "Done, %(count)s words.", count);
  return interpolate(words, { count });
}
