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
const { forgetUser, lastUser } = await import("../../static/js/people/waiting.js");

test("nobody is remembered, and nothing fails, without storage", () => {
  assert.equal(lastUser(), null);
  forgetUser();
  forgetWritten("1");
});

test("people sign out without storage", () => {
  forgetOnSignOut("1");
  onSubmit({ target: { getAttribute: () => "/logout/" } });
});
