// Tells when a connection that looks open carries nothing any more.
//
// A network that went away silently leaves a WebSocket open for a minute and longer. So
// whatever is sent must be acknowledged, and a connection on which nothing comes is
// tried with a ping. No timers here: `tick` is called now and then.

export const TICK = 1000; // milliseconds between two looks
const ACKNOWLEDGED_IN = 5000; // milliseconds for a message that was sent
const LONGEST_PATIENCE = 40_000;
const OPENED_IN = 5000;
const PING_AFTER = 10_000; // milliseconds without a frame
const FRAME_IN = 15_000; // milliseconds after a ping

/** `ping` asks the server for a frame; `lost` is called once for a connection. */
export class Liveness {
  #ping;
  #lost;
  #now;
  #patience = ACKNOWLEDGED_IN;
  #openingSince = null;
  #heardAt = null; // null: no connection
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

  /** The connection is open, or something came on it. */
  heard() {
    this.#openingSince = this.#pingedAt = null;
    this.#heardAt = this.#now();
  }

  closed() {
    this.#openingSince = this.#heardAt = this.#pingedAt = null;
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
      // A server that is slow and not away gets more time from now on.
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
    const isOpen = this.#heardAt !== null && this.#pingedAt === null;
    return isOpen && now - this.#heardAt >= PING_AFTER;
  }

  #giveUp() {
    this.closed();
    this.#lost();
  }
}
