import assert from "node:assert/strict";
import { test } from "node:test";

import * as state from "../../static/js/turn-state.js";

const text = (delta, at = {}) => ({
  type: "response.output_text.delta",
  output_index: 0,
  content_index: 0,
  delta,
  ...at,
});
const added = (item, output_index = 0) => ({
  type: "response.output_item.added",
  output_index,
  item,
});
const done = (item, output_index = 0) => ({
  type: "response.output_item.done",
  output_index,
  item,
});
const said = (words, status = "completed") => ({
  type: "message",
  id: "msg_1",
  status,
  role: "assistant",
  content: [{ type: "output_text", text: words }],
});
const call = (id, status = "completed") => ({
  type: "function_call",
  id: `fc_${id}`,
  call_id: id,
  name: "weather",
  arguments: "{}",
  status,
});
const tool = (what, call_id, more = {}) => ({
  type: `parley:tool_call.${what}`,
  call_id,
  name: "weather",
  ...more,
});

const STREAM = [
  { type: "response.created", response: {} },
  { type: "response.in_progress", response: {} },
  { type: "parley:step.started", step: 1, kind: "generate" },
  added({ ...said(""), content: [] }),
  text("Hello"),
  text(", world"),
  done(said("Hello, world")),
  added(call("a", "in_progress"), 1),
  { type: "response.function_call_arguments.delta", output_index: 1, delta: "!" },
  done(call("a"), 1),
  tool("started", "a"),
  tool("completed", "a", { seconds: 0.5 }),
  { type: "response.completed", response: { status: "completed", error: null } },
];

function told(events, turn = state.newTurn(), epoch = 1, from = 0) {
  events.forEach((event, n) => state.apply(turn, event, `${epoch}-${from + n}`));
  return turn;
}

test("text grows by its deltas", () => {
  const turn = told(STREAM.slice(0, 6));
  assert.equal(state.textOf(turn.items[0]), "Hello, world");
  assert.equal(state.phase(turn).kind, "writing");
});

test("an item that is done is as it was told done", () => {
  const turn = told([...STREAM.slice(0, 5), done(said("Something else"))]);
  assert.equal(state.textOf(turn.items[0]), "Something else");
  assert.ok(turn.items[0].isDone);
});

test("an event told twice counts once, wherever the connection broke", () => {
  const whole = told(STREAM);
  for (let cut = 0; cut < STREAM.length; cut += 1) {
    for (let back = 0; back <= cut; back += 1) {
      const turn = told(STREAM.slice(0, cut));
      told(STREAM.slice(back), turn, 1, back);
      assert.deepEqual(turn, whole);
    }
  }
});

test("a reset drops the items that are told again, and their calls", () => {
  const turn = told(STREAM.slice(0, 11));
  const reset = { type: "parley:step.reset", output_index: 1 };
  assert.ok(state.apply(turn, reset, turn.position));
  assert.equal(turn.items.length, 1);
  assert.deepEqual(turn.calls, {});
});

test("a turn told again in a new epoch ends the same", () => {
  const turn = told(STREAM.slice(0, 6));
  state.apply(turn, { type: "parley:step.reset", output_index: 0 }, turn.position);
  told(STREAM, turn, 2);
  assert.ok(turn.isResumed);
  assert.deepEqual({ ...turn, position: "1-12", isResumed: false }, told(STREAM));
});

test("a reset sets the position back where another process continues the run", () => {
  const turn = state.newTurn();
  const added = (output_index, id) => ({
    type: "response.output_item.added",
    output_index,
    item: { id, type: "message", content: [] },
  });
  const delta = (output_index, delta) => ({
    type: "response.output_text.delta",
    output_index,
    content_index: 0,
    delta,
  });
  const question = { id: "q", kind: "form", call_id: "c" };
  state.apply(turn, { type: "parley:approval.requested", question }, "1-2");
  state.apply(turn, added(0, "m"), "1-4");
  state.apply(turn, delta(0, "One, tw"), "1-9");
  const reset = { type: "parley:step.reset", output_index: 0 };
  assert.ok(state.apply(turn, reset, "1-3"));
  assert.deepEqual([turn.items, turn.position], [[], "1-3"]);
  assert.equal(turn.questions.q, "open");
  assert.equal(turn.isResumed, false);
  assert.ok(state.apply(turn, added(0, "m"), "1-4"));
  assert.ok(state.apply(turn, delta(0, "One, two"), "1-12"));
  assert.equal(turn.items[0].content[0], "One, two");
  state.apply(turn, { type: "parley:step.reset", output_index: 0 }, "1-12");
  state.apply(turn, added(0, "n"), "2-3");
  assert.ok(!state.apply(turn, reset, "1-3"), "of the run before: a repeat");
  assert.equal(turn.items[0].id, "n");
});

test("a reset that takes nothing back is no interruption", () => {
  const turn = told(STREAM.slice(0, 6));
  const reset = { type: "parley:step.reset", output_index: turn.items.length };
  state.apply(turn, reset, turn.position);
  assert.equal(turn.isResumed, false);
});

test("what an older epoch still says is not heard", () => {
  const turn = told(STREAM.slice(0, 5), state.newTurn(), 2);
  assert.equal(state.apply(turn, text("zombie"), "1-99"), false);
  assert.equal(state.textOf(turn.items[0]), "Hello");
});

test("positions are ordered as numbers", () => {
  assert.ok(state.compare("1-10", "1-9") > 0);
  assert.ok(state.compare("2-0", "1-99") > 0);
  assert.ok(state.compare("1-0", null) > 0);
  assert.equal(state.compare("3-7", "3-7"), 0);
});

test("the phase says which tools run", () => {
  const turn = told(STREAM.slice(0, 11));
  assert.deepEqual(state.phase(turn), { kind: "tools", names: ["weather"] });
});

test("a call keeps its progress, its error and its time", () => {
  const turn = told([
    ...STREAM.slice(0, 11),
    tool("progress", "a", { message: "half way" }),
  ]);
  assert.equal(turn.calls.a.message, "half way");
  told([tool("failed", "a", { seconds: 2, error: "no such city" })], turn, 1, 20);
  assert.deepEqual(turn.calls.a, {
    name: "weather",
    state: "failed",
    isBackground: false,
    seconds: 2,
    message: "",
    error: "no such city",
  });
});

test("a call in the background keeps nobody waiting", () => {
  const turn = told([tool("started", "a", { name: "report" }), tool("accepted", "a")]);
  assert.deepEqual(
    [turn.calls.a.state, turn.calls.a.isBackground],
    ["executing", true],
  );
  assert.notEqual(state.phase(turn).kind, "tools");
});

test("a question makes the turn wait, and its answer lets it go on", () => {
  const question = { id: "ask_1", kind: "approval", call_id: "a" };
  const turn = told([
    { type: "response.created" },
    { type: "parley:approval.requested", question },
    { type: "parley:turn.waiting", reason: "approval" },
  ]);
  assert.equal(turn.status, "waiting");
  assert.equal(turn.calls.a.state, "awaiting_approval");
  assert.equal(state.phase(turn).kind, "asking");
  assert.ok(!state.isOver(turn));
  told([{ type: "response.created" }], turn, 2);
  assert.notEqual(turn.questions.ask_1, "open");
  assert.notEqual(state.phase(turn).kind, "asking");
  const form = { id: "ask_2", kind: "form", call_id: "a" };
  told([{ type: "parley:approval.requested", question: form }], turn, 2, 1);
  assert.equal(state.phase(turn).kind, "asking");
  const closed = { type: "parley:question.closed", id: "ask_2", state: "accepted" };
  told([closed], turn, 2, 2);
  assert.equal(turn.questions.ask_2, "accepted");
  assert.notEqual(state.phase(turn).kind, "asking");
});

test("what was asked differently is told once", () => {
  const degraded = (...options) => ({ type: "parley:step.degraded", step: 1, options });
  const turn = told([degraded("seed"), degraded("seed", "top_p")]);
  assert.deepEqual(turn.degraded, ["seed", "top_p"]);
});

test("a message with a result is marked as one", () => {
  const message = { ...said("Result of the call"), role: "user", "parley:call_id": "a" };
  const turn = told([added(message), done(message)]);
  assert.deepEqual([turn.items[0].isResult, turn.items[0].callId], [true, "a"]);
});

test("a stopped turn is told apart from one cut short", () => {
  const ending = (reason) => ({
    type: "response.incomplete",
    response: { status: "incomplete", incomplete_details: { reason } },
  });
  assert.equal(told([ending("cancelled")]).status, "cancelled");
  assert.equal(told([ending("max_output_tokens")]).status, "incomplete");
});

test("a failed turn keeps its error", () => {
  const error = { code: "E_LLM_RATE_LIMIT", message: "Later." };
  const turn = told([{ type: "response.failed", response: { status: "failed", error } }]);
  assert.deepEqual(turn.error, error);
  assert.ok(state.isOver(turn));
});

test("a summary is shown before what was thought in full", () => {
  const thought = { type: "reasoning", id: "rs_1", status: "in_progress", summary: [] };
  const turn = told([
    added({ ...thought, content: [] }),
    {
      type: "response.reasoning.delta",
      output_index: 0,
      content_index: 0,
      delta: "hm",
    },
  ]);
  assert.equal(state.textOf(turn.items[0]), "hm");
  assert.equal(state.phase(turn).kind, "thinking");
  const summary = {
    type: "response.reasoning_summary_text.delta",
    output_index: 0,
    summary_index: 0,
    delta: "In short",
  };
  told([summary], turn, 1, 9);
  assert.equal(state.textOf(turn.items[0]), "In short");
});

test("types yet to come change nothing but the position", () => {
  const turn = told(STREAM.slice(0, 6));
  const before = structuredClone(turn);
  state.apply(turn, { type: "parley:something.new", output_index: 7 }, "1-6");
  assert.deepEqual(turn, { ...before, position: "1-6" });
});

test("deltas of an item never added are ignored", () => {
  assert.deepEqual(told([text("lost", { output_index: 5 })]).items, []);
});

test("EventSource is told of every type that changes anything", () => {
  for (const event of STREAM) assert.ok(state.EVENT_TYPES.includes(event.type));
});

test("a run that goes on after a decision is seen to, by who knows the one before", () => {
  const turn = told([
    ...STREAM.slice(0, 3),
    { type: "parley:approval.requested", question: { id: "ask_1", kind: "approval" } },
    { type: "parley:turn.waiting" },
  ]);
  assert.equal(state.phase(turn).kind, "asking");
  const reset = { type: "parley:step.reset", output_index: turn.items.length };
  state.apply(turn, reset, turn.position);
  assert.equal(turn.questions.ask_1, "decided");
  assert.equal(turn.status, "in_progress");
});
