// A running turn on the page: what changed in its state is shown, and nothing else.

import { cloned, element, icon, slot } from "./dom.js";
import { duration, end, run, sinceOf } from "./elapsed.js";
import { cardOf } from "./hosted.js";
import { MarkdownStream } from "./markdown.js";
import { showQuestions } from "./questions.js";
import { preview, shortened, showPieces } from "./readable.js";
import { citationsOf, isOver, phase, textOf } from "./turn-state.js";

const REPLAYED = 0.1; // seconds; what is told faster was thought before we listened

const GROUPED_BEYOND = 3; // calls beside one another, as conversations/pages/blocks.py has it
const IN_BACKGROUND = "Goes on in the background; the result will be told as it comes.";

const STATES = {
  pending: "Pending",
  awaiting_approval: "Awaiting approval",
  executing: "Executing",
  completed: "Completed",
  failed: "Failed",
  timed_out: "Timed out",
  cancelled: "Cancelled",
  unknown: "Outcome unknown",
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

  update(turn) {
    this.#article.dataset.status = turn.status;
    this.#drop(turn);
    turn.items.forEach((item, index) => this.#show(turn, item, index));
    this.#fold(turn);
    showQuestions(slot(this.#article, "questions"), turn.questions);
    this.#showLeftOut(turn.leftOut);
    this.#showDegraded(turn.degraded);
    this.#showResumed(turn.isResumed);
    this.#showPhase(turn);
  }

  /** The blocks of a first rendering of the server's are told again, live. */
  takeOver() {
    for (const card of this.#answer.querySelectorAll(".called")) {
      this.#since.set(card.dataset.key, sinceOf(slot(card, "time")));
    }
    this.#answer.replaceChildren();
    slot(this.#article, "degraded")?.remove();
  }

  #show(turn, item, index) {
    this.#blocks[index] ??= this.#block(item, index);
    this.#blocks[index]?.update(item, turn);
  }

  #drop(turn) {
    for (const gone of this.#blocks.splice(turn.items.length)) gone?.remove();
    for (const [first, group] of this.#groups) {
      if (first < turn.items.length) continue;
      group.root.remove();
      this.#groups.delete(first);
    }
  }

  #block(item, index) {
    const Kind = kindOf(item);
    if (!Kind) return null;
    const block = new Kind();
    block.root.dataset.key = index;
    block.since = this.#since.get(block.root.dataset.key);
    this.#answer.append(block.root);
    return block;
  }

  #fold(turn) {
    for (const run of sideBySide(turn.items)) {
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
      const words = `Answered without the context “${source}”: ${reason}`;
      if (!shown.has(words)) this.#note("left-out", words);
    }
  }

  #showDegraded(options) {
    if (!options.length) return;
    const named = options.join(", ");
    slot(this.#article, "degraded")?.remove();
    this.#note(
      "degraded",
      `The model does not take all that was asked; changed or left out: ${named}.`,
    );
  }

  #showResumed(isResumed) {
    if (!isResumed || slot(this.#article, "resumed")) return;
    this.#note("resumed", "The answer was interrupted, and goes on by itself.");
  }

  #note(name, textContent) {
    const line = element("p", { className: "degraded" }, icon("alert"));
    line.append(element("span", { textContent }));
    line.dataset.slot = name;
    slot(this.#article, "progress").before(line);
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
      return "Waiting for its turn";
    case "asking":
      return "Waiting for a decision";
    case "waiting":
      return "Waiting for the model";
    case "calling":
      return `Calling ${names[0]}`;
    case "tools":
      return `Running ${names.join(", ")}`;
    default:
      return ""; // the text that comes, or the thoughts' own line, says enough
  }
}

class Block {
  remove() {
    this.root.remove();
  }
}

class Said extends Block {
  root = cloned("said");
  #stream = new MarkdownStream(this.root);
  #sources = null;
  #cited = 0;
  #ended = false;

  remove() {
    super.remove();
    this.#sources?.remove();
  }

  update(item) {
    if (this.#ended) return;
    if (item.annotations.length !== this.#cited) this.#cite(item);
    this.#stream.update(textOf(item));
    this.#ended = item.isDone;
    if (this.#ended) this.#stream.end();
  }

  #cite(item) {
    this.#cited = item.annotations.length;
    const links = citationsOf(item).map(({ url, title }) =>
      element("li", {}, webLink(url, title)),
    );
    if (!links.length) return;
    this.#sources ??= element("ol", { className: "citations", ariaLabel: "Sources" });
    this.#sources.replaceChildren(...links);
    this.root.after(this.#sources);
  }
}

function webLink(href, textContent) {
  const rel = "noopener noreferrer nofollow";
  return element("a", { href, rel, target: "_blank", dir: "auto", title: href, textContent });
}

class Thought extends Block {
  root = cloned("thought");
  #stream = new MarkdownStream(slot(this.root, "text"));
  #since = performance.now();
  #ended = false;

  constructor() {
    super();
    this.root.dataset.live = "";
    run(slot(this.root, "label"), "Thinking…", this.#since);
  }

  update(item) {
    if (this.#ended) return;
    this.#stream.update(textOf(item));
    this.#ended = item.isDone;
    if (this.#ended) this.#end(item);
  }

  #end(item) {
    const seconds = (performance.now() - this.#since) / 1000;
    const label = seconds < REPLAYED ? "Thoughts" : `Thought for ${Math.ceil(seconds)} s`;
    this.#stream.end();
    end(slot(this.root, "label"), label);
    delete this.root.dataset.live;
    this.root.hidden = textOf(item) === ""; // some providers keep it to themselves
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
    this.#set("error", call?.error ?? "", (words) => this.#say("error", words));
    this.#set("brief", inBrief(item, call), (words) => this.#text("preview", words));
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
    this.#text("state", STATES[state]);
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

/** How far it is while it runs, for who has not opened the card; else what it is for. */
function inBrief(item, call) {
  const isRunning = call?.state === "executing" && call.message;
  return isRunning ? call.message : preview(item.arguments);
}

function messageOf(call) {
  if (!call?.isBackground || call.state !== "executing") return call?.message ?? "";
  return call.message || IN_BACKGROUND;
}

function stateOf(item, call) {
  if (call) return call.state;
  return item.isDone && item.status === "incomplete" ? "cancelled" : "pending";
}

/** What is no call of ours: a provider's own tool, or a result that came later. */
class Noted extends Block {
  root = cloned("called");
  #last = "";

  update(item) {
    const told = JSON.stringify(item.raw);
    if (told === this.#last) return;
    this.#last = told;
    if (item.isTold) this.#showResult(item);
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
    slot(this.root, "given").firstElementChild.textContent = "Details";
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
    slot(this.root, "state").textContent = STATES[state];
  }
}

function foundIn({ title, url }) {
  return url ? webLink(url, title) : element("strong", { dir: "auto", textContent: title });
}

function kindOf(item) {
  if (item.type === "function_call_output") return null;
  if (item.isTold) return Noted;
  return { message: Said, reasoning: Thought, function_call: Called }[item.type] ?? Noted;
}

/** Calls made side by side, folded into one line that tells how they stand. */
class Group {
  root = cloned("called-group");

  constructor(first) {
    this.root.dataset.key = `group-${first}`;
  }

  update(cards) {
    const list = slot(this.root, "calls");
    for (const card of cards) if (card.parentElement !== list) list.append(card);
    slot(this.root, "count").textContent = `${cards.length} calls`;
    const counts = {};
    for (const { dataset } of cards) {
      counts[dataset.state] = (counts[dataset.state] ?? 0) + 1;
    }
    const words = Object.keys(STATES)
      .filter((state) => counts[state])
      .flatMap((state) => [stateLabel(state, counts[state]), " "]);
    slot(this.root, "states").replaceChildren(...words);
  }
}

function stateLabel(state, count) {
  const textContent = `${count} ${STATES[state].toLowerCase()}`;
  const label = element("span", { className: "called-state", textContent });
  label.dataset.state = state;
  return label;
}

/** The indexes of calls that were made side by side, longest runs only. */
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
