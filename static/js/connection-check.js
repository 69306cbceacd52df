// Detects an open connection that no longer transmits anything.
//
// After a silent network failure a WebSocket stays open for a minute or longer. So
// every message must be acknowledged, and a silent connection is tested with a ping. No
// timers here: the caller calls `tick` at intervals.

export const TICK = 1000; // milliseconds between two looks
const ACKNOWLEDGED_IN = 5000; // milliseconds for a message that was sent
const LONGEST_PATIENCE = 40_000;
const OPENED_IN = 5000;
const PING_AFTER = 10_000; // milliseconds without a frame
const FRAME_IN = 15_000; // milliseconds after a ping

/** `ping` requests a frame from the server; `lost` is called once per connection. */
export class ConnectionCheck {
  #ping;
  #lost;
  #now;
  #patience = ACKNOWLEDGED_IN;
  #openingSince = null;
  #receivedAt = null; // null: no connection
  #pingedAt = null;
  #waiting = new Map(); // key -> when its message was sent

  constructor({ ping, lost, now = () => performance.now() }) {
    this.#ping = ping;
    this.#lost = lost;
    this.#now = now;
  }

  opening() {
    this.closed();
    this.#openingSince = this.#now();
  }

  /** The connection was opened, or a frame arrived. */
  received() {
    this.#openingSince = this.#pingedAt = null;
    this.#receivedAt = this.#now();
  }

  closed() {
    this.#openingSince = this.#receivedAt = this.#pingedAt = null;
    this.#waiting.clear();
  }

  sent(key) {
    this.#waiting.set(key, this.#now());
  }

  acknowledged(key) {
    this.#waiting.delete(key);
    this.#patience = ACKNOWLEDGED_IN;
  }

  tick() {
    const now = this.#now();
    const isSilent = this.#pingedAt !== null && now - this.#pingedAt >= FRAME_IN;
    const [oldest] = this.#waiting.values();
    if (oldest !== undefined && now - oldest >= this.#patience) {
      // The server is slow but reachable: allow it more time from now on.
      this.#patience = Math.min(2 * this.#patience, LONGEST_PATIENCE);
      this.#giveUp();
    } else if (isSilent || this.#isOpeningTooLong(now)) {
      this.#giveUp();
    } else if (this.#isQuiet(now)) {
      this.#pingedAt = now;
      this.#ping();
    }
  }

  #isOpeningTooLong(now) {
    return this.#openingSince !== null && now - this.#openingSince >= OPENED_IN;
  }

  #isQuiet(now) {
    const isOpen = this.#receivedAt !== null && this.#pingedAt === null;
    return isOpen && now - this.#receivedAt >= PING_AFTER;
  }

  #giveUp() {
    this.closed();
    this.#lost();
  }
}
