// A library that is loaded when it is needed, and again where that failed.
import assert from "node:assert/strict";
import test from "node:test";

let online = () => {};
globalThis.addEventListener = (_, listener) => (online = listener);
const { Library } = await import("../../static/js/reading/library.js");

const settled = () => new Promise((resolve) => setImmediate(resolve));

function scene(context, failures) {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const seen = { attempts: 0, used: [] };
  const load = async () => {
    seen.attempts += 1;
    if (seen.attempts <= failures) throw new Error("lost");
    return "loaded";
  };
  const library = new Library(load, (found) => seen.used.push(found));
  return { library, seen };
}

test("it is loaded once, and used as often as it is needed", async (context) => {
  const { library, seen } = scene(context, 0);
  library.need();
  library.need();
  await settled();
  library.need();
  assert.deepEqual(seen, { attempts: 1, used: ["loaded", "loaded"] });
});

test("a failure is tried again, without anybody's asking", async (context) => {
  const { library, seen } = scene(context, 2);
  library.need();
  await settled();
  assert.equal(seen.attempts, 1);
  library.need(); // a pause is a pause, however much waits
  await settled();
  assert.equal(seen.attempts, 1);
  for (const pause of [1000, 2000]) {
    context.mock.timers.tick(pause);
    await settled();
  }
  assert.deepEqual(seen, { attempts: 3, used: ["loaded"] });
});

test("attempts end, until something new needs it", async (context) => {
  const { library, seen } = scene(context, 6);
  library.need();
  for (let round = 0; round < 20; round += 1) {
    await settled();
    context.mock.timers.tick(60_000);
  }
  assert.equal(seen.attempts, 6);
  library.need();
  await settled();
  assert.deepEqual(seen, { attempts: 7, used: ["loaded"] });
});

test("a network that is back ends the pause", async (context) => {
  const { library, seen } = scene(context, 1);
  library.need();
  await settled();
  online();
  await settled();
  assert.deepEqual(seen, { attempts: 2, used: ["loaded"] });
  online();
  await settled();
  assert.equal(seen.attempts, 2);
});

test("what is forgotten is loaded anew at the next need", async (context) => {
  const { library, seen } = scene(context, 0);
  library.need();
  await settled();
  library.forget();
  await settled();
  assert.equal(seen.attempts, 1);
  library.need();
  await settled();
  assert.equal(seen.attempts, 2);
});
