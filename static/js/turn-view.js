// A running turn on the page: what changed in its state is shown, and nothing else.

import { cloned, element, icon, slot } from "./dom.js";
import { duration, end, run } from "./elapsed.js";
import { MarkdownStream } from "./markdown.js";
import { showQuestions } from "./questions.js";
import { preview, showPieces } from "./readable.js";
import { isOver, phase, textOf } from "./turn-state.js";

const REPLAYED = 0.1; // seconds; what is told faster was thought before we listened

const GROUPED_BEYOND = 3; // calls beside one another, as conversations/blocks.py has it
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
    this.#showDegraded(turn.degraded);
    this.#showPhase(turn);
  }

  /** The blocks of a first rendering of the server's are told again, live. */
  takeOver() {
    this.#answer.replaceChildren();
    slot(this.#article, "degraded")?.remove();
  }

  #show(turn, item, index) {
    this.#blocks[index] ??= this.#block(item, index);
    this.#blocks[index]?.update(item, turn);
  }

  #drop(turn) {
    for (const gone of this.#blocks.splice(turn.items.length)) gone?.root.remove();
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

  #showDegraded(options) {
    if (!options.length) return;
    const named = options.join(", ");
    const textContent =
      `The model does not take all that was asked; changed or left out: ${named}.`;
    const line = element("p", { className: "degraded" }, icon("alert"));
    line.append(element("span", { textContent }));
    line.dataset.slot = "degraded";
    slot(this.#article, "degraded")?.remove();
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

class Said {
  root = cloned("said");
  #stream = new MarkdownStream(this.root);
  #ended = false;

  update(item) {
    if (this.#ended) return;
    this.#stream.update(textOf(item));
    this.#ended = item.isDone;
    if (this.#ended) this.#stream.end();
  }
}

class Thought {
  root = cloned("thought");
  #stream = new MarkdownStream(slot(this.root, "text"));
  #since = performance.now();
  #ended = false;

  constructor() {
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

class Called {
  root = cloned("called");
  #shown = {};

  update(item, turn) {
    const call = turn.calls[item.callId];
    const output = call?.isBackground ? null : outputOf(item, turn);
    this.#set("name", item.name, (name) => this.#text("name", name));
    this.#set("state", stateOf(item, call), (state) => this.#showState(state, call));
    this.#set("message", messageOf(call), (words) => this.#say("message", words));
    this.#set("error", call?.error ?? "", (words) => this.#say("error", words));
    this.#set("arguments", item.arguments, (text) => {
      this.#text("preview", preview(text));
      showPieces(slot(this.root, "arguments"), text);
    });
    this.#set("output", output, (value) => this.#showOutput(value));
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
    if (state === "executing") run(time, "", performance.now());
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

/** What is no call of ours: a provider's own tool, or a result that came later. */
class Noted {
  root = cloned("called");
  #last = "";

  update(item) {
    const told = JSON.stringify(item.raw);
    if (told === this.#last) return;
    this.#last = told;
    const state = HOSTED[item.status] ?? "executing";
    this.root.dataset.state = state;
    slot(this.root, "state").textContent = STATES[state];
    if (item.isTold) this.#showResult(item);
    else this.#showCard(item);
  }

  #showResult(item) {
    const [heading, ...rest] = textOf(item).split("\n\n");
    slot(this.root, "name").textContent = heading.replace(/:$/, "");
    slot(this.root, "given").hidden = true;
    slot(this.root, "result").hidden = false;
    showPieces(slot(this.root, "output"), rest.join("\n\n"));
  }

  #showCard({ type, raw }) {
    const told = Object.entries(raw).filter(([name, v]) => v && !ELSEWHERE.has(name));
    const words = type.replace(/^parley:|_call$/g, "").replaceAll("_", " ");
    slot(this.root, "name").textContent = words[0].toUpperCase() + words.slice(1);
    slot(this.root, "given").hidden = !told.length;
    showPieces(slot(this.root, "arguments"), JSON.stringify(Object.fromEntries(told)));
  }
}

const HOSTED = { completed: "completed", failed: "failed", incomplete: "cancelled" };
const ELSEWHERE = new Set(["id", "type", "status", "call_id"]);

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
