// The live view of a turn: what a resumed run has sent otherwise, and how it ends.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, addTemplate, openPage, slotted } from "./page.mjs";

const { body } = openPage();
const SLOTS = ["answer", "text", "files", "remove", "phase", "progress", "questions"];
addTemplate("turn", slotted("article", { class: "turn" }, ...SLOTS));
addTemplate("said", new Element("div", { class: "said prose" }));
const thought = slotted("details", { class: "thought", "data-thinking": "Thinking" }, "label", "text");
addTemplate("thought", thought);
const CALL = ["name", "state", "time", "message", "error", "preview", "given", "arguments", "result", "output"];
addTemplate("called", slotted("details", { class: "called" }, ...CALL));
addTemplate("called-group", slotted("details", { class: "called-group" }, "count", "states", "calls"));
body.append(
  new Element("p", { id: "announcer" }),
  new Element("p", { id: "alarm" }),
);
const frames = [];
globalThis.requestAnimationFrame = (act) => frames.push(act);
globalThis.setInterval = () => 0;
globalThis.getSelection = () => ({ isCollapsed: true });
globalThis.reportError = () => {};
const { RunningTurns } = await import("../../../static/js/running-turns.js");

function begun(onNews = () => {}) {
  const transcript = new Element("main");
  body.append(transcript);
  const nothing = () => {};
  const turns = new RunningTurns({
    page: "/chat/1/", transcript, onNews,
    onChange: nothing, onBackground: nothing, onQueue: nothing,
  });
  const article = turns.begin("Hello");
  turns.accepted(article, `t${body.children.length}`);
  let position = 0;
  const receive = (type, fields = {}) => {
    turns.receive(article.dataset.turn, { type, ...fields }, `0-${(position += 1)}`);
  };
  return { article, receive };
}

/** As many frames as what has come takes. */
function frame() {
  while (frames.length) frames.shift()();
}

const item = (index, fields) => ({ output_index: index, item: { content: [], ...fields } });
const delta = (index, text) => ({ output_index: index, content_index: 0, delta: text });

test("what a resumed run sends otherwise is shown in blocks of its own", () => {
  const { article, receive } = begun();
  receive("response.output_item.added", item(0, { id: "r", type: "reasoning", summary: [] }));
  receive("response.reasoning.delta", delta(0, "I wonder."));
  receive("response.output_item.added", item(1, { id: "a", type: "message" }));
  receive("response.output_item.done", item(1, { id: "a", type: "message", content: [{ text: "Old." }] }));
  frame();
  assert.match(article.textContent, /I wonder\.[^]*Old\./);
  receive("parley:step.reset", { output_index: 0 });
  receive("response.output_item.added", item(0, { id: "b", type: "message" }));
  receive("response.output_text.delta", delta(0, "First."));
  receive("response.output_item.added", item(1, { id: "c", type: "message" }));
  receive("response.output_text.delta", delta(1, "Second."));
  frame();
  assert.equal(article.querySelector(".thought"), null);
  const said = article.querySelectorAll(".said").map(({ textContent }) => textContent.trim());
  assert.deepEqual(said, ["First.", "Second."]);
});

test("a block stays while its item goes on", () => {
  const { article, receive } = begun();
  receive("response.output_item.added", item(1, { id: "b", type: "message" }));
  receive("response.output_text.delta", delta(1, "One "));
  frame();
  const block = article.querySelector(".said");
  receive("response.output_text.delta", delta(1, "two."));
  receive("response.output_item.done", item(1, { id: "b", type: "message", content: [{ text: "One two." }] }));
  frame();
  assert.equal(article.querySelector(".said"), block);
});

function rendered(text) {
  const answer = new Element("div", { "data-slot": "answer" }, text);
  return new Element("article", { class: "turn", "data-status": "completed" }, answer);
}

globalThis.fetch = async () => ({ ok: true, url: "http://chat.example/", text: async () => "" });
globalThis.DOMParser = class {
  parseFromString = () => ({ querySelector: () => rendered("As the server has it.") });
};
const over = { response: { status: "completed" } };

test("the server's rendering is shown though the sign of the news fails", async () => {
  const { article, receive } = begun(() => {
    throw new TypeError("Illegal constructor");
  });
  receive("response.completed", over);
  assert.throws(frame);
  await new Promise(setImmediate);
  assert.equal(article.textContent, "As the server has it.");
});

test("a turn that cannot be shown keeps no other from being shown, and ends", async () => {
  const [broken, sound] = [begun(), begun()];
  broken.receive("response.output_item.added", item(0, { id: "a", type: "message" }));
  frame();
  Object.defineProperty(broken.article.querySelector(".said"), "append", {
    value: () => {
      throw new RangeError("Maximum call stack size exceeded");
    },
  });
  broken.receive("response.output_text.delta", delta(0, "One.\n\nTwo."));
  sound.receive("response.output_item.added", item(0, { id: "b", type: "message" }));
  sound.receive("response.output_text.delta", delta(0, "Sound."));
  frame();
  assert.match(sound.article.textContent, /Sound\./);
  broken.receive("response.completed", over);
  frame();
  await new Promise(setImmediate);
  assert.equal(broken.article.textContent, "As the server has it.");
});

test("calls leave their group when a resumed run makes fewer", () => {
  const { article, receive } = begun();
  const call = (index) => item(index, { id: `c${index}`, call_id: `c${index}`, type: "function_call", name: "look", arguments: "" });
  for (const index of [0, 1, 2, 3, 4]) receive("response.output_item.added", call(index));
  frame();
  assert.equal(article.querySelectorAll(".called-group .called").length, 5);
  receive("parley:step.reset", { output_index: 2 });
  receive("response.output_item.added", item(2, { id: "b", type: "message" }));
  receive("response.output_text.delta", delta(2, "Done."));
  frame();
  assert.equal(article.querySelector(".called-group"), null);
  assert.equal(article.querySelectorAll(".called").length, 2);
});

for (const [status, requests] of [[404, 1], [403, 1], [500, 4]]) {
  test(`a finished turn whose rendering answers ${status} is fetched ${requests} times`, async (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const fetched = t.mock.method(globalThis, "fetch", async () => ({ ok: false, status }));
    const { receive } = begun();
    receive("response.completed", over);
    frame();
    for (const pause of [0, 3000, 6000, 11_999, 1]) {
      t.mock.timers.tick(pause);
      await new Promise(setImmediate);
    }
    assert.equal(fetched.mock.callCount(), requests);
  });
}

/** A turn as the server renders it. */
function serverTurn(id, status) {
  const article = slotted("article", { class: "turn", id, "data-turn": id.slice(5), "data-status": status }, ...SLOTS);
  article.querySelector('[data-slot="progress"]').className = "progress";
  return article;
}

test("what is stopped together are the answers that are compared and run", () => {
  const columns = [["c1", "completed"], ["c2", "in_progress"], ["c3", "queued"]];
  const compared = columns.map(([id, status]) => serverTurn(`turn-${id}`, status));
  const transcript = new Element("main", {}, new Element("section", { class: "comparison" }, ...compared));
  body.append(transcript);
  const turns = new RunningTurns({ page: "/chat/1/", transcript });
  assert.deepEqual(turns.runningTogether, []);
  turns.adopt();
  assert.deepEqual(turns.runningTogether, ["c2", "c3"]);
  const alone = new Element("main", {}, serverTurn("turn-a1", "in_progress"), serverTurn("turn-a2", "queued"));
  body.append(alone);
  const others = new RunningTurns({ page: "/chat/1/", transcript: alone });
  others.adopt();
  assert.deepEqual(others.runningTogether, ["a1"]);
});

test("a comment that is being written stays when a background call has ended", async () => {
  const ratingOf = (comment) => {
    const text = Object.assign(new Element("textarea"), { value: comment });
    const details = new Element("details", { class: "rating-comment" }, text);
    return new Element("form", { class: "rating" }, details);
  };
  const article = serverTurn("turn-b1", "completed");
  article.append(new Element("details", { class: "called", "data-background": "" }), ratingOf("Half a"));
  article.querySelector(".rating-comment").setAttribute("open", "");
  const transcript = new Element("main", {}, article);
  body.append(transcript);
  const turns = new RunningTurns({ page: "/chat/1/", transcript, onChange() {} });
  const fresh = serverTurn("turn-b1", "completed");
  fresh.append(new Element("p", { class: "done" }), ratingOf(""));
  globalThis.fetch = async (url) => ({ ok: true, status: 200, redirected: false, url, text: async () => "" });
  globalThis.DOMParser = class {
    parseFromString = () => ({ querySelector: () => fresh });
  };
  turns.renew(new Map());
  await new Promise(setImmediate);
  assert.notEqual(article.querySelector(".done"), null);
  assert.deepEqual(article.querySelectorAll("textarea").map(({ value }) => value), ["Half a"]);
});

/** The page is left, or the reader comes back. */
function hide(isHidden) {
  document.hidden = isHidden;
  document.dispatchEvent(new Event("visibilitychange"));
}

test("an answer that ends after the page was hidden is told, though no frame comes", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  t.after(() => {
    hide(false);
    frames.length = 0; // the browser runs it when the page is seen again
  });
  const news = [];
  const { receive } = begun((what) => news.push(what));
  receive("response.output_item.added", item(0, { id: "a", type: "message" }));
  assert.equal(frames.length, 1);
  hide(true);
  receive("response.completed", over);
  t.mock.timers.tick(1000);
  assert.deepEqual(news, ["ready"]);
});

const asks = (id) => ({ question: { id, kind: "form", call_id: "c1" } });
const announcer = body.querySelector("#announcer");

/** A turn that ran already when the page was opened. */
function opened(id, onNews = () => {}, status = "in_progress") {
  const transcript = new Element("main", {}, serverTurn(`turn-${id}`, status));
  body.append(transcript);
  const nothing = () => {};
  const turns = new RunningTurns({
    page: "/chat/1/", transcript, onNews,
    onChange: nothing, onBackground: nothing, onQueue: nothing,
  });
  turns.adopt();
  announcer.textContent = "";
  let position = 0;
  return (type, fields = {}) => turns.receive(id, { type, ...fields }, `0-${(position += 1)}`);
}

test("what a turn did before its page was opened is no news", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  globalThis.fetch = async () => ({ ok: false, status: 404 });
  const news = [];
  const receive = opened("n1", (what) => news.push(what));
  receive("response.created");
  receive("parley:tool_call.started", { call_id: "c1", name: "look" });
  receive("parley:approval.requested", asks("q1"));
  frame(); // what came before takes several
  t.mock.timers.tick(400);
  receive("parley:tool_call.started", { call_id: "c2", name: "look" });
  frame();
  t.mock.timers.tick(400);
  receive("parley:question.closed", { id: "q1", state: "accepted" });
  for (const call_id of ["c1", "c2"]) {
    receive("parley:tool_call.completed", { call_id, name: "look", state: "completed" });
  }
  frame();
  t.mock.timers.tick(1000);
  assert.deepEqual([news, announcer.textContent], [[], ""]);
  receive("parley:approval.requested", asks("q2"));
  frame();
  receive("response.in_progress");
  frame();
  assert.deepEqual([news, announcer.textContent], [["waiting"], "Your decision is needed."]);
});

test("a question that is still open when its page was opened is told", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const news = [];
  const receive = opened("n2", (what) => news.push(what));
  receive("response.created");
  receive("parley:approval.requested", asks("q1"));
  frame();
  assert.deepEqual(news, []);
  t.mock.timers.tick(1000);
  assert.deepEqual([news, announcer.textContent], [["waiting"], "Your decision is needed."]);
});

test("tools that run when their page is opened are told, though the answer goes on", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const receive = opened("n3");
  receive("parley:tool_call.started", { call_id: "c1", name: "look" });
  for (let passed = 0; passed < 1200; passed += 400) {
    frame();
    t.mock.timers.tick(400);
    receive("response.in_progress");
  }
  assert.equal(announcer.textContent, "The tool look is running.");
});

test("a turn that waited when its page was opened is told from its beginning", () => {
  const receive = opened("n4", () => {}, "queued");
  receive("response.created");
  frame();
  assert.equal(announcer.textContent, "The answer begins.");
});

test("calls that begin together are announced once, with those that still run", () => {
  const { receive } = begun();
  receive("response.created");
  frame();
  for (const [id, name] of [["c1", "look"], ["c2", "look"], ["c3", "read"], ["c4", "done"]]) {
    receive("parley:tool_call.started", { call_id: id, name });
  }
  receive("parley:tool_call.completed", { call_id: "c4", name: "done", state: "completed" });
  frame();
  assert.equal(announcer.textContent, "Running look, read");
});

test("a frame without changes parses nothing of the calls again", (t) => {
  const { receive } = begun();
  const call = (id) => ({ id, call_id: id, type: "function_call", name: "look", arguments: '{"a": 1}' });
  for (const index of [0, 1, 2]) receive("response.output_item.done", item(index, call(`c${index}`)));
  const hosted = { id: "w", type: "web_search_call", status: "completed" };
  receive("response.output_item.done", item(3, hosted));
  receive("response.output_item.added", item(4, { id: "m", type: "message" }));
  frame();
  const parsed = t.mock.method(JSON, "parse");
  const written = t.mock.method(JSON, "stringify");
  receive("response.output_text.delta", delta(4, "More."));
  frame();
  assert.deepEqual([parsed.mock.callCount(), written.mock.callCount()], [0, 0]);
});
