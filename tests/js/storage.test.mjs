// Scripts where the browser denies storage: reading `localStorage` throws there.
import assert from "node:assert/strict";
import test from "node:test";

for (const name of ["localStorage", "sessionStorage"]) {
  const get = () => {
    throw new DOMException("denied", "SecurityError");
  };
  Object.defineProperty(globalThis, name, { get, configurable: true });
}
let onSubmit = null;
globalThis.document = {
  querySelector: () => null,
  addEventListener: (_, listener) => (onSubmit = listener),
};
const { forgetOnSignOut, forgetWritten } = await import("../../static/js/people/sign-out.js");
const { local, session } = await import("../../static/js/stored.js");
const { forgetUser, lastUser } = await import("../../static/js/people/waiting.js");

test("nobody is remembered, and nothing fails, without storage", () => {
  assert.equal(lastUser(), null);
  forgetUser();
  forgetWritten("1");
});

test("people sign out without storage", async () => {
  let count = 0;
  globalThis.HTMLFormElement = { prototype: { submit: () => (count += 1) } };
  forgetOnSignOut("1");
  await onSubmit({ preventDefault() {}, target: { getAttribute: () => "/logout/" } });
  assert.equal(count, 1);
});

test("people sign out where the browser does not answer", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let count = 0;
  globalThis.HTMLFormElement = { prototype: { submit: () => (count += 1) } };
  globalThis.indexedDB = { open: () => ({}) };
  t.after(() => delete globalThis.indexedDB);
  const done = onSubmit({ preventDefault() {}, target: { getAttribute: () => "/logout/" } });
  assert.equal(count, 0);
  t.mock.timers.tick(2000);
  await done;
  assert.equal(count, 1);
});

test("what is to be stored is not, and what is read is not there", () => {
  for (const area of [local, session]) {
    assert.equal(area.set("a", "b"), false);
    assert.equal(area.get("a"), null);
    area.remove("a");
    assert.deepEqual(area.names, []);
  }
});

test("a full storage keeps what it has", () => {
  const setItem = () => {
    throw new DOMException("full", "QuotaExceededError");
  };
  Object.defineProperty(globalThis, "localStorage", { value: { setItem, getItem: () => "before" } });
  assert.equal(local.set("a", "b"), false);
  assert.equal(local.get("a"), "before");
});
