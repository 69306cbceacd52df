// A running turn on the page: what changed in its state is shown, and nothing else.

import { cloned, slot } from "./dom.js";
import { duration, end, run } from "./elapsed.js";
import { preview, showJSON } from "./json.js";
import { MarkdownStream } from "./markdown.js";
import { isOver, phase, textOf } from "./turn-state.js";

const REPLAYED = 0.1; // seconds; what is told faster was thought before we listened

const STATES = {
  pending: "Preparing",
  executing: "Running",
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
  #phase = null;

  constructor(article) {
    this.#article = article;
    this.#answer = slot(article, "answer");
  }

  update(turn) {
    this.#article.dataset.status = turn.status;
    this.#drop(turn);
    turn.items.forEach((item, index) => this.#show(turn, item, index));
    this.#showPhase(turn);
  }

  /** The blocks of a first rendering of the server's are told again, live. */
  takeOver() {
    this.#answer.replaceChildren();
  }

  #show(turn, item, index) {
    this.#blocks[index] ??= this.#block(item, index);
    this.#blocks[index]?.update(item, turn);
  }

  #drop(turn) {
    for (const gone of this.#blocks.splice(turn.items.length)) gone?.root.remove();
  }

  #block(item, index) {
    const Kind = KINDS[item.type];
    if (!Kind) return null;
    const block = new Kind();
    block.root.dataset.key = index;
    this.#answer.append(block.root);
    return block;
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
    const output = turn.items.find(
      (other) => other?.type === "function_call_output" && other.callId === item.callId,
    );
    this.#set("name", item.name, (name) => this.#text("name", name));
    this.#set("state", stateOf(item, call), (state) => this.#showState(state, call));
    this.#set("message", call?.message ?? "", (words) => this.#showMessage(words));
    this.#set("arguments", item.arguments, (text) => {
      this.#text("preview", preview(text));
      showJSON(slot(this.root, "arguments"), text);
    });
    this.#set("output", output?.output ?? null, (value) => this.#showOutput(value));
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

  #showMessage(words) {
    this.#text("message", words);
    slot(this.root, "message").hidden = !words;
  }

  #showOutput(value) {
    slot(this.root, "result").hidden = value === null;
    if (value !== null) showJSON(slot(this.root, "output"), value);
  }
}

function stateOf(item, call) {
  if (call) return call.state;
  return item.isDone && item.status === "incomplete" ? "cancelled" : "pending";
}

const KINDS = { message: Said, reasoning: Thought, function_call: Called };
