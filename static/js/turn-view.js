// View of a running turn: updates the parts of the page whose state has changed.

import { cloned, element, icon, slot } from "./dom.js";
import { duration, end, run, sinceOf, sinceServer } from "./elapsed.js";
import { cardOf } from "./hosted.js";
import { locale } from "./locale.js";
import { MarkdownStream } from "./markdown.js";
import { showQuestions } from "./questions.js";
import { preview, shortened, showPieces } from "./readable.js";
import { gettext, interpolate, ngettext } from "./texts.js";
import { citationsOf, isOver, phase, textOf } from "./turn-state.js";

const SECONDS = "parley:seconds"; // of an item of reasoning, as it is stored
const BEGAN = "parley:began"; // of one that is open: seconds since 1970

const GROUPED_BEYOND = 3; // calls beside one another, as conversations/pages/blocks.py has it
const IN_BACKGROUND = gettext(
  "Running in the background; its result will appear when it is there.",
);

const STATES = {
  pending: gettext("pending"),
  awaiting_approval: gettext("awaiting approval"),
  awaiting_sign_in: gettext("waiting for a sign-in"),
  executing: gettext("executing"),
  completed: gettext("completed"),
  failed: gettext("failed"),
  timed_out: gettext("timed out"),
  cancelled: gettext("cancelled"),
  unknown: gettext("outcome unknown"),
  abandoned: gettext("abandoned, may still run"),
};

export class TurnView {
  #article;
  #answer;
  #blocks = [];
  #groups = new Map(); // index of the first call -> Group
  #phase = null;
  #since = new Map(); // by key: since when a call runs that the server rendered

  constructor(article) {
    this.#article = article;
    this.#answer = slot(article, "answer");
  }

  /** Shows the turn, of long texts as much as there is time `until` then. Returns whether
   *  all of it is shown. */
  update(turn, until = Infinity) {
    this.#article.dataset.status = turn.status;
    this.#drop(turn);
    const shown = turn.items.map((item, index) => this.#show(turn, item, index, until));
    this.#fold(turn);
    showQuestions(slot(this.#article, "questions"), turn.questions);
    this.#showLeftOut(turn.leftOut);
    this.#showDegraded(turn.degraded);
    this.#showResumed(turn.isResumed);
    this.#showPhase(turn);
    return !shown.includes(false);
  }

  /** The live view replaces the blocks of the server's first rendering. */
  takeOver() {
    for (const card of this.#answer.querySelectorAll(".called")) {
      this.#since.set(card.dataset.key, sinceOf(slot(card, "time")));
    }
    this.#answer.replaceChildren();
    slot(this.#article, "degraded")?.remove();
  }

  #show(turn, item, index, until) {
    this.#blocks[index] ??= this.#block(item, index);
    return this.#blocks[index]?.update(item, turn, until);
  }

  /** Removes the blocks of items that are gone, from the first that a run which was
   *  resumed has sent otherwise. */
  #drop({ items }) {
    const changed = this.#blocks.findIndex((block, index) => block && !block.shows(items[index]));
    if (changed < 0) return;
    for (const gone of this.#blocks.splice(changed)) gone?.remove();
    for (const [first, group] of this.#groups) {
      if (first < changed) continue;
      group.root.remove();
      this.#groups.delete(first);
    }
  }

  #block(item, index) {
    const Kind = kindOf(item);
    if (!Kind) return null;
    const block = new Kind(item);
    block.itemId = item.id;
    block.root.dataset.key = index;
    block.since = this.#since.get(block.root.dataset.key);
    this.#answer.append(block.root);
    return block;
  }

  #fold(turn) {
    const runs = [...sideBySide(turn.items)];
    const firsts = new Set(runs.map(([first]) => first));
    for (const [first, group] of this.#groups) {
      if (firsts.has(first)) continue;
      group.dissolve(); // fewer calls are beside one another than before
      this.#groups.delete(first);
    }
    for (const run of runs) {
      const cards = run.map((index) => this.#blocks[index].root);
      if (!this.#groups.has(run[0])) {
        const group = new Group(run[0]);
        cards[0].before(group.root);
        this.#groups.set(run[0], group);
      }
      this.#groups.get(run[0]).update(cards);
    }
  }

  #showLeftOut(sources) {
    const lines = this.#article.querySelectorAll('[data-slot="left-out"]');
    const shown = new Set([...lines].map((line) => line.textContent));
    for (const { source, reason } of sources) {
      const words = interpolate(
        gettext("Answered without the context “%(source)s”: %(reason)s"),
        { source, reason },
      );
      if (!shown.has(words)) this.#note("left-out", words);
    }
  }

  #showDegraded(options) {
    if (!options.length) return;
    slot(this.#article, "degraded")?.remove();
    const words = gettext(
      "The model does not support all options; changed or left out: %(options)s.",
    );
    this.#note("degraded", interpolate(words, { options: options.join(", ") }));
  }

  #showResumed(isResumed) {
    if (!isResumed || slot(this.#article, "resumed")) return;
    const words = gettext("The answer was interrupted and resumes automatically.");
    this.#note("resumed", words);
  }

  #note(name, textContent) {
    const line = element("p", { className: "degraded" }, icon("alert"));
    line.append(element("span", { textContent }));
    line.dataset.slot = name;
    slot(this.#article, "progress").before(line);
  }

  /** Another text stands in the line of the phase. */
  forgetPhase() {
    this.#phase = null;
  }

  #showPhase(turn) {
    const line = slot(this.#article, "phase");
    if (!line) return;
    const words = inWords(phase(turn));
    slot(this.#article, "progress").classList.toggle("is-writing", words === "");
    if (words === this.#phase) return;
    this.#phase = words;
    if (isOver(turn) || !words || turn.status === "queued") end(line, words);
    else run(line, words, performance.now());
  }
}

function inWords({ kind, names }) {
  switch (kind) {
    case "queued":
      return gettext("Waiting for its turn");
    case "asking":
      return gettext("Waiting for a decision");
    case "waiting":
      return gettext("Waiting for the model");
    case "summarising":
      return gettext("Summarising earlier messages");
    case "calling":
      return interpolate(gettext("Calling %(tool)s"), { tool: names[0] });
    case "tools":
      return interpolate(gettext("Running %(tools)s"), { tools: names.join(", ") });
    default:
      return ""; // the text that follows, or the line of the reasoning, shows it
  }
}

class Block {
  shows(item) {
    return item?.id === this.itemId && kindOf(item) === this.constructor;
  }

  remove() {
    this.root.remove();
  }
}

class MessageText extends Block {
  root = cloned("said");
  #stream = new MarkdownStream(this.root);
  #sources = null;
  #cited = 0;
  #ended = false;

  remove() {
    super.remove();
    this.#sources?.remove();
  }

  update(item, turn, until) {
    if (this.#ended) return true;
    if (item.annotations.length !== this.#cited) this.#cite(item);
    const isShown = this.#stream.update(textOf(item), until);
    this.#ended = item.isDone && isShown;
    if (this.#ended) this.#stream.end();
    return isShown;
  }

  #cite(item) {
    this.#cited = item.annotations.length;
    const links = citationsOf(item).map(({ url, title }) =>
      element("li", {}, url ? webLink(url, title) : citedFile(title)),
    );
    if (!links.length) return;
    const ariaLabel = gettext("Sources");
    this.#sources ??= element("ol", { className: "citations", ariaLabel });
    this.#sources.replaceChildren(...links);
    this.root.after(this.#sources);
  }
}

/** A person's message that joined the turn while it ran. */
class Asked extends Block {
  root = cloned("steered");

  update(item) {
    slot(this.root, "text").textContent = textOf(item);
  }
}

const citedFile = (textContent) =>
  element("span", { className: "cited-file", dir: "auto", textContent });

function webLink(href, textContent) {
  const rel = "noopener noreferrer nofollow";
  return element("a", { href, rel, target: "_blank", dir: "auto", title: href, textContent });
}

class Thought extends Block {
  root = cloned("thought");
  #stream = new MarkdownStream(slot(this.root, "text"));
  #ended = false;

  constructor({ raw }) {
    super();
    this.root.dataset.live = "";
    run(slot(this.root, "label"), this.root.dataset.thinking, sinceServer(raw[BEGAN]));
  }

  update(item, turn, until) {
    if (this.#ended) return true;
    const isShown = this.#stream.update(textOf(item), until);
    this.#ended = item.isDone && isShown;
    if (this.#ended) this.#end(item);
    return isShown;
  }

  #end(item) {
    const { thought, thoughtFor } = this.root.dataset;
    const seconds = Math.ceil(item.raw[SECONDS] ?? 0); // as blocks.py has it
    const label = seconds ? thoughtFor.replace("{seconds}", seconds) : thought;
    this.#stream.end();
    end(slot(this.root, "label"), label);
    delete this.root.dataset.live;
    this.root.hidden = textOf(item) === ""; // some providers do not send it
  }
}

/** A summary that replaces earlier messages, as conversations/pages/blocks.py has it. */
class Summarised extends Block {
  root = cloned("summarised");
  #stream = new MarkdownStream(slot(this.root, "text"));
  #ended = false;

  update(item, turn, until) {
    if (this.#ended) return true;
    const count = item.raw["parley:messages"];
    const words = ngettext(
      "%(count)s earlier message summarised",
      "%(count)s earlier messages summarised",
      count,
    );
    slot(this.root, "label").textContent = interpolate(words, { count });
    const isShown = this.#stream.update(textOf(item), until);
    this.#ended = item.isDone && isShown;
    if (this.#ended) this.#stream.end();
    return isShown;
  }
}

class Called extends Block {
  root = cloned("called");
  #shown = {};

  update(item, turn) {
    const call = turn.calls[item.callId];
    const output = call?.isBackground ? null : outputOf(item, turn);
    this.#set("name", item.name, (name) => this.#text("name", name));
    this.#set("state", stateOf(item, call), (state) => this.#showState(state, call));
    this.#set("message", messageOf(call), (words) => this.#say("message", words));
    this.#set("error", sentence(call?.error ?? ""), (words) => this.#say("error", words));
    // On a closed card: the progress of a running call, else its arguments, which are
    // parsed only if they have changed.
    const message = call?.state === "executing" ? call.message : "";
    this.#set("brief", message || item.arguments, (words) =>
      this.#text("preview", message || preview(words)),
    );
    this.#set("arguments", item.arguments, (text) => {
      showPieces(slot(this.root, "arguments"), text);
      slot(this.root, "given").hidden = ["", "{}"].includes(text.trim());
    });
    const isError = output === `Error: ${call?.error}`; // it is shown already
    this.#set("output", isError ? null : output, (value) => this.#showOutput(value));
  }

  #set(name, value, show) {
    if (this.#shown[name] === value) return;
    this.#shown[name] = value;
    show(value);
  }

  #text(name, text) {
    slot(this.root, name).textContent = text;
  }

  #showState(state, call) {
    this.root.dataset.state = state;
    this.#text("state", capitalised(STATES[state]));
    const time = slot(this.root, "time");
    if (state === "executing") run(time, "", this.since ?? performance.now());
    else end(time, call?.seconds == null ? "" : duration(call.seconds));
  }

  #say(name, words) {
    this.#text(name, words);
    slot(this.root, name).hidden = !words;
  }

  #showOutput(value) {
    slot(this.root, "result").hidden = value === null || value === "";
    if (value !== null) showPieces(slot(this.root, "output"), value);
  }
}

function outputOf({ callId }, turn) {
  const isIt = (other) =>
    other?.type === "function_call_output" && other.callId === callId;
  return turn.items.find(isIt)?.output ?? null;
}

function messageOf(call) {
  if (!call?.isBackground || call.state !== "executing") return call?.message ?? "";
  return call.message || IN_BACKGROUND;
}

function stateOf(item, call) {
  if (call) return call.state;
  return item.isDone && item.status === "incomplete" ? "cancelled" : "pending";
}

/** With a capital letter; `capfirst` of blocks.py. */
function capitalised(words) {
  return words.slice(0, 1).toLocaleUpperCase(locale) + words.slice(1);
}

/** Items that are not Parley's calls: a provider's tool, or a later result. */
class Noted extends Block {
  root = cloned("called");
  #raw = null;
  #last = "";

  update(item) {
    if (item.raw === this.#raw) return; // an item that has changed is another object
    this.#raw = item.raw;
    const shown = JSON.stringify(item.raw);
    if (shown === this.#last) return;
    this.#last = shown;
    if (item.isResult) this.#showResult(item);
    else this.#showCard(cardOf(item.raw));
  }

  #showResult(item) {
    const [heading, ...rest] = textOf(item).split("\n\n");
    this.#head("inbox", heading.replace(/:$/, ""), "completed");
    slot(this.root, "preview").textContent = shortened(rest.join(" "));
    slot(this.root, "given").hidden = true;
    slot(this.root, "result").hidden = false;
    showPieces(slot(this.root, "output"), rest.join("\n\n"));
  }

  #showCard({ title, state, query, code, results, error }) {
    this.#head("globe", title, state);
    slot(this.root, "preview").textContent = shortened(query);
    slot(this.root, "error").textContent = error;
    slot(this.root, "error").hidden = !error;
    slot(this.root, "given").hidden = !code;
    slot(this.root, "given").firstElementChild.textContent = gettext("Details");
    showPieces(slot(this.root, "arguments"), code);
    slot(this.root, "result").hidden = !results.length;
    const found = results.map((result) => element("li", {}, foundIn(result)));
    const list = element("ul", { className: "found" }, ...found);
    slot(this.root, "output").replaceChildren(list);
  }

  #head(drawing, name, state) {
    this.root.dataset.state = state;
    this.root.querySelector("summary > .icon").replaceWith(icon(drawing));
    slot(this.root, "name").textContent = name;
    slot(this.root, "name").classList.add("is-words");
    slot(this.root, "state").textContent = capitalised(STATES[state]);
  }
}

function foundIn({ title, url }) {
  return url ? webLink(url, title) : element("strong", { dir: "auto", textContent: title });
}

function kindOf(item) {
  if (item.type === "function_call_output") return null;
  if (item.isResult) return Noted;
  if (item.isSummary) return Summarised;
  if (item.isAsked) return Asked;
  return { message: MessageText, reasoning: Thought, function_call: Called }[item.type] ?? Noted;
}

/** Parallel calls, collapsed to one line with their states. */
class Group {
  root = cloned("called-group");
  #shown = ""; // numbers of calls by state

  constructor(first) {
    this.root.dataset.key = `group-${first}`;
  }

  update(cards) {
    const list = slot(this.root, "calls");
    for (const card of cards) if (card.parentElement !== list) list.append(card);
    const count = cards.length;
    const words = ngettext("%(count)s call", "%(count)s calls", count);
    slot(this.root, "count").textContent = interpolate(words, { count });
    const counts = {};
    for (const { dataset } of cards) {
      counts[dataset.state] = (counts[dataset.state] ?? 0) + 1;
    }
    const labels = Object.keys(STATES)
      .filter((state) => counts[state])
      .flatMap((state) => [stateLabel(state, counts[state]), " "]);
    const shown = JSON.stringify(counts);
    if (shown === this.#shown) return;
    this.#shown = shown;
    slot(this.root, "states").replaceChildren(...labels);
  }

  dissolve() {
    this.root.replaceWith(...slot(this.root, "calls").children);
  }
}

/** The words with their first letter as at the beginning of a sentence. Errors are in
 *  the language of the page, not in the browser's, by which Turkish makes "i" an "İ". */
function sentence(words) {
  const [first = ""] = words;
  return first.toUpperCase() + words.slice(first.length);
}

function stateLabel(state, count) {
  const textContent = `${count} ${STATES[state]}`;
  const label = element("span", { className: "called-state", textContent });
  label.dataset.state = state;
  return label;
}

/** The indexes of parallel calls, in maximal runs. */
function* sideBySide(items) {
  let run = [];
  for (const [index, item] of items.entries()) {
    if (item?.type === "function_call") run.push(index);
    else if (item && (item.type !== "reasoning" || textOf(item))) {
      if (run.length > GROUPED_BEYOND) yield run;
      run = [];
    }
  }
  if (run.length > GROUPED_BEYOND) yield run;
}
