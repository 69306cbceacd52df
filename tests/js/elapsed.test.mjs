// Times of the server's clock, shown by a browser whose clock may be wrong.
import assert from "node:assert/strict";
import test from "node:test";

const page = { dataset: { now: "1000.5" } };
globalThis.document = { getElementById: () => page };
Object.defineProperty(globalThis, "performance", {
  value: { now: () => 60_000, getEntriesByType: () => [{ responseStart: 200 }] },
});
const { sinceServer } = await import("../../static/js/elapsed.js");

test("what began before the page was loaded began that long ago", () => {
  assert.equal(sinceServer(1000.5), 200);
  assert.equal(sinceServer(990.5), -9800); // ten seconds before the answer
  assert.equal(sinceServer(1030.5), 30_200);
});

test("nothing begins in the future, and what has no time begins now", () => {
  assert.equal(sinceServer(5000), 60_000);
  assert.equal(sinceServer(undefined), 60_000);
});
