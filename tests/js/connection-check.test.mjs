// When a connection that looks open is given up, with a clock of the test's own.

import assert from "node:assert/strict";
import test from "node:test";
import { ConnectionCheck, TICK } from "../../static/js/connection-check.js";

/** A connection over which `answers` decides whether the server is heard. */
function connection({ answers = () => true, buffered } = {}) {
  const seen = { pings: [], lost: [] };
  let now = 0;
  const liveness = new ConnectionCheck({
    now: () => now,
    buffered: () => buffered?.(now) ?? 0,
    ping: () => {
      seen.pings.push(now);
      if (answers(now)) liveness.received();
    },
    lost: () => seen.lost.push(now),
  });
  const pass = (milliseconds) => {
    for (const until = now + milliseconds; now < until; ) {
      now += TICK;
      liveness.tick();
    }
  };
  return { liveness, seen, pass };
}

test("an open connection with a server that answers is never given up", () => {
  const { liveness, seen, pass } = connection();
  liveness.received();
  pass(600_000);
  assert.deepEqual(seen.lost, []);
  assert.ok(seen.pings.length >= 50);
});

test("no frame in 25 seconds is one loss, after a ping", () => {
  const { liveness, seen, pass } = connection({ answers: () => false });
  liveness.received();
  pass(60_000);
  assert.deepEqual(seen, { pings: [10_000], lost: [25_000] });
});

test("a message without an acknowledgement in 5 seconds is a loss", () => {
  const { liveness, seen, pass } = connection();
  liveness.received();
  pass(3000);
  liveness.sent("a");
  pass(3000);
  liveness.received(); // something else comes
  pass(3000);
  assert.deepEqual(seen.lost, [8000]);
});

test("an acknowledged message is none", () => {
  const { liveness, seen, pass } = connection();
  liveness.received();
  liveness.sent("a");
  pass(4000);
  liveness.acknowledged("a");
  pass(60_000);
  assert.deepEqual(seen.lost, []);
});

test("a slow server gets twice the time at each new attempt, until it answers", () => {
  const { liveness, seen, pass } = connection();
  for (const wait of [5000, 10_000, 20_000, 40_000, 40_000]) {
    const before = seen.lost.length;
    liveness.received();
    liveness.sent("a");
    pass(wait - TICK);
    assert.equal(seen.lost.length, before);
    pass(TICK);
    assert.equal(seen.lost.length, before + 1);
  }
  liveness.received();
  liveness.acknowledged("a");
  liveness.sent("b");
  pass(5000);
  assert.equal(seen.lost.length, 6);
});

test("a connection that does not open in 5 seconds is a loss", () => {
  const { liveness, seen, pass } = connection();
  liveness.opening();
  pass(60_000);
  assert.deepEqual(seen.lost, [5000]);
});

test("a page whose timers stood still asks before it gives up", () => {
  const seen = { pings: 0, lost: 0 };
  let now = 0;
  const liveness = new ConnectionCheck({
    now: () => now,
    ping: () => (seen.pings += 1),
    lost: () => (seen.lost += 1),
  });
  liveness.received();
  now = 3_600_000; // the computer slept
  liveness.tick();
  now += TICK;
  liveness.tick();
  assert.deepEqual(seen, { pings: 1, lost: 0 });
});

test("a reader who is back learns within seconds that nothing answers", () => {
  const { liveness, seen, pass } = connection({ answers: () => false });
  liveness.received();
  pass(2000);
  liveness.check();
  pass(60_000);
  assert.deepEqual(seen, { pings: [2000], lost: [6000] });
});

test("a reader who is back changes nothing where the server answers", () => {
  const { liveness, seen, pass } = connection();
  liveness.received();
  pass(2000);
  liveness.check();
  pass(9000);
  assert.deepEqual(seen, { pings: [2000], lost: [] });
  liveness.closed();
  liveness.check();
  assert.equal(seen.pings.length, 1);
});

test("a sleep through which the timers' clock stood still is noticed", (t) => {
  const seen = { pings: [], lost: [] };
  let [now, slept] = [0, 0];
  t.mock.method(Date, "now", () => now + slept);
  const liveness = new ConnectionCheck({
    now: () => now,
    ping: () => seen.pings.push(now),
    lost: () => seen.lost.push(now),
  });
  liveness.received();
  for (let ticks = 1; ticks <= 20; ticks += 1) {
    now += TICK;
    if (ticks === 3) slept = 3_600_000;
    liveness.tick();
  }
  assert.deepEqual(seen, { pings: [3000], lost: [7000] });
});

test("nothing is tried where there is no connection", () => {
  const { liveness, seen, pass } = connection();
  liveness.received();
  liveness.sent("a");
  liveness.closed();
  pass(60_000);
  assert.deepEqual(seen, { pings: [], lost: [] });
});

test("a long message that goes up slowly is given its time", () => {
  const buffered = (now) => Math.max(1_000_000 - 10 * now, 0); // for 100 seconds
  const { liveness, seen, pass } = connection({ answers: () => false, buffered });
  liveness.received();
  liveness.sent("a");
  pass(100_000);
  assert.deepEqual(seen.lost, []);
  pass(60_000);
  assert.deepEqual(seen.lost, [105_000]);
});

test("a message that no longer goes up is a loss", () => {
  const { liveness, seen, pass } = connection({ answers: () => false, buffered: () => 100 });
  liveness.received();
  liveness.sent("a");
  pass(60_000);
  assert.deepEqual(seen.lost, [5000]);
});
