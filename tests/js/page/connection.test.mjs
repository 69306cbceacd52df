// What is sent and followed, where the connection is lost or the server refuses it.
import assert from "node:assert/strict";
import test from "node:test";

import { openPage } from "./page.mjs";

openPage();
const sockets = [];
globalThis.WebSocket = class {
  static CONNECTING = 0;
  static OPEN = 1;
  readyState = 0;
  frames = [];
  constructor() {
    sockets.push(this);
  }
  send(frame) {
    this.frames.push(JSON.parse(frame));
  }
  close() {
    this.readyState = 3;
  }
  opens() {
    this.readyState = 1;
    this.onopen();
  }
  says(message) {
    this.onmessage({ data: JSON.stringify(message) });
  }
  get stops() {
    return this.frames.filter(({ type }) => type === "turn.cancel").map(({ turn }) => turn);
  }
};
globalThis.EventSource = class {
  addEventListener() {}
};
const listeners = {};
globalThis.addEventListener = (type, act) => (listeners[type] = act);
globalThis.setInterval = () => 0;
globalThis.setTimeout = (act) => setImmediate(act);
const { Refused, connect } = await import("../../../static/js/connection.js");
const { StreamWay } = await import("../../../static/js/polling/stream-way.js");

function connected() {
  const goesOn = [];
  const heard = [];
  const nothing = () => {};
  const listener = {
    onEvent: (turn, { type }, position) => heard.push([turn, type, position]),
    onState: nothing, onGoesOn: (...told) => goesOn.push(told),
    checkSession: async () => false,
  };
  const urls = { socketURL: "ws://chat.example/ws/", turnsURL: "", changesURL: "" };
  const connection = connect({ conversation: "1", ...urls, csrfToken: () => "", listener });
  connection.follow("t1");
  return { connection, goesOn, heard, socket: () => sockets.at(-1) };
}

/** The network is back: another socket opens. */
function reopen({ socket }) {
  listeners.online();
  socket().opens();
}

test("a turn is stopped once the connection is back, until its end has come", () => {
  const page = connected();
  page.connection.stop("t1");
  page.socket().opens();
  assert.deepEqual(page.socket().stops, ["t1"]);
  reopen(page); // the frame may have gone into a half-open connection
  assert.deepEqual(page.socket().stops, ["t1"]);
  page.socket().says({ type: "response.incomplete", turn: "t1", position: "0-9" });
  reopen(page);
  assert.deepEqual(page.socket().stops, []);
});

test("a reader who is back has an open connection tested, and another one opened", () => {
  const page = connected();
  const isBack = () => document.dispatchEvent(new Event("visibilitychange"));
  page.socket().opens();
  const pings = () => page.socket().frames.filter(({ type }) => type === "ping").length;
  isBack();
  assert.equal(pings(), 1);
  const before = page.socket();
  before.close();
  isBack();
  assert.notEqual(page.socket(), before);
  const opening = page.socket();
  isBack();
  assert.equal(page.socket(), opening);
});

test("a stop that the server refuses is told and not sent again", () => {
  const page = connected();
  page.socket().opens();
  page.connection.stop("t1");
  const error = { code: "not_found", message: "There is no such turn." };
  page.socket().says({ type: "error", key: page.socket().frames.at(-1).key, error });
  assert.deepEqual(page.goesOn, [["t1", "There is no such turn."]]);
  reopen(page);
  assert.deepEqual(page.socket().stops, []);
});

test("a turn that has ended is not told to stop later", () => {
  const page = connected();
  page.socket().opens();
  page.socket().says({ type: "response.completed", turn: "t1", position: "0-9" });
  page.connection.stop("t1");
  reopen(page);
  assert.deepEqual(page.socket().stops, []);
});

const sent = (page) => page.socket().frames.filter(({ type }) => type === "turn.create");

test("half of an emoji is not sent, for no server accepts it", () => {
  const page = connected();
  page.socket().opens();
  page.connection.send({ key: "k1", text: "half \ud83d, whole \u{1f600}" });
  assert.equal(sent(page)[0].input, "half \ufffd, whole \u{1f600}");
});

test("a message larger than the server reads is refused and not sent again", async () => {
  const page = connected();
  page.socket().opens();
  const small = page.connection.send({ key: "k1", text: "short" });
  const large = page.connection.send({ key: "k2", text: "x".repeat(1000) });
  page.socket().onclose({ code: 1009 });
  await assert.rejects(large, Refused);
  await new Promise(setImmediate);
  page.socket().opens();
  assert.deepEqual(sent(page).map(({ key }) => key), ["k1"]);
  page.socket().says({ type: "parley:turn.queued", key: "k1", turn: "t2" });
  assert.equal(await small, "t2");
});

test("a turn that was deleted meanwhile is told and not followed again", () => {
  const page = connected();
  page.socket().opens();
  const error = { code: "invalid_message", message: "There is no such turn." };
  page.socket().says({ type: "error", turn: "t1", error });
  assert.deepEqual(page.heard, [["t1", "error", undefined]]);
  reopen(page);
  assert.deepEqual(page.socket().frames, []);
});

const UNCHANGED = { open_questions: [] };

/** The addresses that are posted to while the server answers thus, in order. */
async function stopOverRequests(...answers) {
  const posted = [];
  const refused = [];
  const stops = new Set(["t1"]);
  globalThis.fetch = async (url, { method } = {}) => {
    if (method !== "POST") return { ok: true, status: 200, json: async () => UNCHANGED };
    posted.push(url);
    const [status, body] = answers.shift();
    if (!status) throw new TypeError("no network");
    return { ok: status < 400, status, json: async () => body };
  };
  const shared = {
    stops, following: new Map(), unsent: new Map(), onState() {},
    onOpenQuestions() {}, onQueue() {}, onRenamed() {}, onBranches() {},
    checkSession: async () => false,
    refuseStop: (...told) => refused.push(told),
  };
  const way = new StreamWay({ changesURL: "/changes/", csrfToken: () => "" }, shared);
  await way.stop("t1");
  way.close();
  return { posted, refused };
}

test("without a WebSocket a stop is posted until the server answers", async () => {
  const { posted, refused } = await stopOverRequests([0], [503], [200, {}]);
  assert.deepEqual(posted, Array(3).fill("/api/turns/t1/cancel/"));
  assert.deepEqual(refused, []);
});

test("without a WebSocket a refused stop is told", async () => {
  const error = { message: "There is no such turn." };
  const { posted, refused } = await stopOverRequests([404, { error }]);
  assert.equal(posted.length, 1);
  assert.deepEqual(refused, [["t1", "There is no such turn."]]);
});
