// A turn of another tab or person is shown, also if its first request fails.
import assert from "node:assert/strict";
import test, { mock } from "node:test";

import { Element, openPage } from "./page.mjs";

mock.timers.enable({ apis: ["setTimeout"] }); // between two requests
const { body } = openPage();
const answers = [];
const requests = [];
globalThis.fetch = async (url) => {
  const status = answers.shift() ?? 200;
  requests.push(url);
  if (status === 0) throw new TypeError("no network");
  return { ok: status === 200, status, redirected: false, url, text: async () => "" };
};
globalThis.DOMParser = class {
  parseFromString() {
    const article = new Element("article", { "data-turn": "t2", "data-parent": "", "data-status": "completed" });
    article.className = "turn";
    return new Element("body", {}, article);
  }
};
globalThis.IntersectionObserver = class {
  observe() {}
};
const { Branch } = await import("../../../static/js/branches/branch.js");

/** The ids of the turns that a page shows; `t2` is told to it while `statuses` are the answers. */
async function told(...statuses) {
  answers.splice(0, answers.length, ...statuses);
  const shown = [];
  const transcript = new Element("main");
  body.append(transcript);
  const turns = { has: (id) => shown.includes(id), addForeign: (id) => shown.push(id) };
  let isOver = false;
  new Branch({ page: "/chat/1/", transcript, turns }).add("t2").then(() => (isOver = true));
  for (const pause of [0, 3000, 6000]) {
    mock.timers.tick(pause);
    await new Promise(setImmediate);
  }
  assert.equal(isOver, true);
  return shown;
}

test("its request is sent again until the server answers", async () => {
  assert.deepEqual(await told(503, 429), ["t2"]);
  assert.deepEqual(await told(0, 500), ["t2"]);
});

test("a turn that is gone is not asked for again", async () => {
  assert.deepEqual(await told(404), []);
  assert.deepEqual(answers, []);
});

test("what else follows the server hears at once that a turn's page fails", async () => {
  answers.splice(0, answers.length, ...Array(10).fill(500));
  const turns = { has: () => false };
  let delays = 0;
  new Branch({ page: "/chat/1/", transcript: new Element("main"), turns }).add("t2", () => (delays += 1));
  await new Promise(setImmediate);
  assert.equal(delays, 1);
  answers.splice(0, answers.length, 404);
  mock.timers.tick(3000); // ends it
  await new Promise(setImmediate);
});

test("a fault of the page is reported, and no request is sent again for it", async () => {
  answers.splice(0);
  requests.splice(0);
  const fault = new TypeError("of the page");
  const turns = {
    has: () => false,
    addForeign: () => {
      throw fault;
    },
  };
  const branch = new Branch({ page: "/chat/1/", transcript: new Element("main"), turns });
  await assert.rejects(branch.add("t2"), fault);
  assert.equal(requests.length, 1);
});
