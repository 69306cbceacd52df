// State of one turn, computed from its canonical events.
//
// Pure: events in, a plain state out. It has the turn's items by `output_index`, the states
// of its tool calls by `call_id`, and those of its questions by id.
//
// An event at or before the last position is a repetition (for example after a
// reconnect) and changes nothing. The exception is `parley:step.reset`: it has the
// position that its reader has reached already, or sets it back where another process
// continues the same run, and it removes the items that will be sent again.

export const TERMINAL = new Set([
  "response.completed",
  "response.incomplete",
  "response.failed",
]);

/** Key of a message that reports the result of a background call to the model. */
const RESULT_OF = "parley:call_id";

const WEB = /^https?:\/\//i;

/** All event types of a turn's stream, because EventSource subscribes by type. */
export const EVENT_TYPES = [
  "response.created",
  "response.in_progress",
  "response.output_item.added",
  "response.output_item.done",
  "response.content_part.added",
  "response.content_part.done",
  "response.output_text.delta",
  "response.output_text.done",
  "response.output_text.annotation.added",
  "response.refusal.delta",
  "response.refusal.done",
  "response.reasoning.delta",
  "response.reasoning.done",
  "response.reasoning_summary_part.added",
  "response.reasoning_summary_part.done",
  "response.reasoning_summary_text.delta",
  "response.reasoning_summary_text.done",
  "response.function_call_arguments.delta",
  "response.function_call_arguments.done",
  "parley:compaction.started",
  "parley:compaction.failed",
  "parley:context.failed",
  "parley:step.started",
  "parley:step.finished",
  "parley:step.reset",
  "parley:step.degraded",
  "parley:tool_call.started",
  "parley:tool_call.accepted",
  "parley:tool_call.progress",
  "parley:tool_call.completed",
  "parley:tool_call.failed",
  "parley:tool_call.timed_out",
  "parley:tool_call.cancelled",
  "parley:tool_call.unknown",
  "parley:result.arrived",
  "parley:background_call.completed",
  "parley:background_call.failed",
  "parley:approval.requested",
  "parley:question.closed",
  "parley:turn.waiting",
  ...TERMINAL,
];

export function newTurn() {
  return {
    status: "queued",
    position: null,
    items: [],
    calls: {},
    questions: {},
    degraded: [],
    leftOut: [],
    summarising: null, // number of messages that are being summarised
    isResumed: false, // text was removed, and will be sent again
    error: null,
  };
}

/** The statuses of an unfinished turn. */
export const UNFINISHED = ["queued", "in_progress", "waiting"];

export const isOver = (turn) => !UNFINISHED.includes(turn.status);

/** Applies an event. Returns false if it changed nothing. */
export function apply(turn, event, position = event.position) {
  const order = compare(position, turn.position);
  if (order <= 0 && !isResetOf(turn, event, position)) return false;
  turn.position = position;
  const change = CHANGES[event.type];
  if (change) change(turn, event, order);
  return true;
}

/** Whether the event is a reset of what its reader knows: at its position, or before it
 * in the same run. One of an earlier run is a repeat. */
function isResetOf(turn, event, position) {
  if (event.type !== "parley:step.reset") return false;
  return position.split("-")[0] === turn.position.split("-")[0];
}

/** The order of two positions, `<epoch>-<sequence>`; null comes before all. */
export function compare(a, b) {
  if (b === null) return 1;
  const [epochA, sequenceA] = a.split("-").map(Number);
  const [epochB, sequenceB] = b.split("-").map(Number);
  return epochA - epochB || sequenceA - sequenceB;
}

/** The text of a message or a reasoning item: its summary, else its content. */
export function textOf(item) {
  const parts = item.summary.some(Boolean) ? item.summary : item.content;
  return parts.filter(Boolean).join(item.type === "message" ? "" : "\n\n");
}

/** The pages and files that a message cites, each once: `{url, title}`; a file has no URL. */
export function citationsOf(item) {
  const found = new Map();
  for (const { type, url, title, filename } of item.annotations) {
    if (type === "file_citation" && filename) found.set(filename, { title: filename });
    if (type !== "url_citation" || !WEB.test(url)) continue;
    found.set(url, { url, title: title || url.split("/")[2] });
  }
  return [...found.values()];
}

/** What the turn is doing: `{kind, names}`, for the line below it. */
export function phase(turn) {
  if (turn.status === "queued") return { kind: "queued" };
  if (isAsking(turn)) return { kind: "asking" };
  if (isOver(turn)) return { kind: turn.status };
  if (turn.summarising !== null) return { kind: "summarising" };
  const running = Object.values(turn.calls).filter(
    (call) => call.state === "executing" && !call.isBackground,
  );
  if (running.length) return { kind: "tools", names: running.map((c) => c.name) };
  const last = turn.items.findLast((item) => item);
  if (!last || last.isDone) return { kind: "waiting" };
  const kinds = { reasoning: "thinking", message: "writing", function_call: "calling" };
  return { kind: kinds[last.type] ?? "waiting", names: [last.name] };
}

/** What a call waits for, by the kind of its question; a form's call goes on running. */
const WAITING_STATES = { approval: "awaiting_approval", sign_in: "awaiting_sign_in" };

const CHANGES = {
  "response.created": (turn) => {
    started(turn);
    decided(turn);
  },
  "response.in_progress": started,
  "parley:compaction.started": (turn, { messages }) => {
    turn.summarising = messages;
  },
  "parley:compaction.failed": (turn) => {
    turn.summarising = null;
  },
  "response.output_item.added": (turn, { output_index, item }) => {
    turn.summarising = null;
    turn.items[output_index] = itemOf(item);
    turn.status = "in_progress";
  },
  "response.output_item.done": (turn, { output_index, item }) => {
    turn.items[output_index] = { ...itemOf(item), isDone: true };
  },
  "response.output_text.delta": (turn, event) => lengthen(turn, event, "content"),
  "response.refusal.delta": (turn, event) => lengthen(turn, event, "content"),
  "response.reasoning.delta": (turn, event) => lengthen(turn, event, "content"),
  "response.reasoning_summary_text.delta": (turn, event) =>
    lengthen(turn, event, "summary"),
  "response.output_text.annotation.added": (turn, { output_index, annotation }) => {
    const item = turn.items[output_index];
    if (item && isCitation(annotation)) item.annotations.push(annotation);
  },
  "response.function_call_arguments.delta": (turn, event) => {
    const item = turn.items[event.output_index];
    if (item) item.arguments += event.delta;
  },
  "parley:step.reset": (turn, { output_index }, order) => {
    turn.isResumed ||= order === 0 && turn.items.length > output_index;
    started(turn); // a client that knows an earlier run gets no event for the start of this one
    if (order === 0) decided(turn); // the same run does not ask again
    turn.items.length = Math.min(turn.items.length, output_index);
    turn.summarising = null;
    const remaining = new Set(turn.items.map((item) => item?.callId));
    for (const id of Object.keys(turn.calls)) {
      if (!remaining.has(id)) delete turn.calls[id];
    }
  },
  "parley:context.failed": (turn, { source, reason }) => {
    const isKnown = turn.leftOut.some((known) => known.source === source);
    if (!isKnown) turn.leftOut.push({ source, reason });
  },
  "parley:step.degraded": (turn, { options }) => {
    turn.degraded = [...new Set([...turn.degraded, ...options])];
  },
  "parley:tool_call.started": (turn, event) => {
    callOf(turn, event).name = event.name;
    callOf(turn, event).state = "executing";
  },
  "parley:tool_call.accepted": (turn, event) => {
    callOf(turn, event).state = "executing";
    callOf(turn, event).isBackground = true;
  },
  "parley:tool_call.progress": (turn, event) => {
    callOf(turn, event).message = event.message;
  },
  "parley:tool_call.completed": ended,
  "parley:tool_call.failed": ended,
  "parley:tool_call.timed_out": ended,
  "parley:tool_call.cancelled": ended,
  "parley:tool_call.unknown": ended,
  "parley:approval.requested": (turn, { question }) => {
    turn.questions[question.id] = "open";
    if (question.kind in WAITING_STATES) {
      callOf(turn, question).state = WAITING_STATES[question.kind];
    }
  },
  "parley:question.closed": (turn, { id, state }) => {
    turn.questions[id] = state;
  },
  "parley:turn.waiting": (turn) => {
    turn.status = "waiting";
  },
  "response.completed": over,
  "response.incomplete": over,
  "response.failed": over,
};

function started(turn) {
  turn.status = "in_progress";
}

/** A resumed run asks the undecided questions again. */
function decided(turn) {
  for (const [id, state] of Object.entries(turn.questions)) {
    if (state === "open") turn.questions[id] = "decided";
  }
}

function isAsking(turn) {
  return turn.status === "waiting" || Object.values(turn.questions).includes("open");
}

function lengthen(turn, event, field) {
  const item = turn.items[event.output_index];
  if (!item) return;
  const part = field === "summary" ? event.summary_index : event.content_index;
  item[field][part] = (item[field][part] ?? "") + event.delta;
}

function ended(turn, event) {
  const call = callOf(turn, event);
  call.state = event.type.slice("parley:tool_call.".length);
  call.seconds = event.seconds;
  call.message = "";
  call.error = event.error ?? "";
}

function over(turn, { response }) {
  const why = response.incomplete_details?.reason;
  turn.status = why === "cancelled" ? "cancelled" : response.status;
  turn.error = response.error;
}

function callOf(turn, { call_id }) {
  turn.calls[call_id] ??= {
    name: "",
    state: "pending",
    isBackground: false,
    seconds: null,
    message: "",
    error: "",
  };
  return turn.calls[call_id];
}

function itemOf(item) {
  const texts = (parts) =>
    (Array.isArray(parts) ? parts : []).map((part) => part.text ?? part.refusal ?? "");
  return {
    id: item.id,
    type: item.type,
    isResult: RESULT_OF in item,
    isAsked: item.role === "user" && !(RESULT_OF in item),
    isSummary: item.type === "compaction" && "parley:through" in item,
    raw: item,
    status: item.status,
    name: item.name ?? "",
    callId: item.call_id ?? item[RESULT_OF] ?? "",
    arguments: item.arguments ?? "",
    output: item.output ?? null,
    content: texts(item.content),
    summary: texts(item.summary),
    annotations: annotationsOf(item.content),
    isDone: false,
  };
}

const isCitation = (note) =>
  typeof note?.url === "string" || typeof note?.filename === "string";

function annotationsOf(content) {
  const parts = Array.isArray(content) ? content : [];
  const notes = parts.flatMap((part) => part.annotations ?? []);
  return notes.filter(isCitation);
}
