// Detects an open connection that transmits nothing: each message must be acknowledged, and a
// silent one is tested with a ping. The caller calls `tick` at intervals.

export const TICK = 1000; // milliseconds between two looks
const ACKNOWLEDGED_IN = 5000; // milliseconds for a message that was sent
const LONGEST_PATIENCE = 40_000;
const OPENED_IN = 5000;
const PING_AFTER = 10_000; // milliseconds without a frame
const FRAME_IN = 15_000; // milliseconds after a ping
const CHECKED_IN = 4000; // after one that the reader waits for

/** `ping` requests a frame; `lost` is called once; `buffered()` bytes are not sent yet. */
export class ConnectionCheck {
  #ping;
  #lost;
  #now;
  #buffered;
  #tickedAt = Date.now(); // goes on in a sleep, as `now` may not
  #left = 0; // bytes
  #patience = ACKNOWLEDGED_IN;
  #openingSince = null;
  #receivedAt = null; // null: no connection
  #pingedAt = null;
  #waiting = new Map(); // key -> when its message was sent

  constructor({ ping, lost, buffered = () => 0, now = () => performance.now() }) {
    this.#ping = ping;
    this.#lost = lost;
    this.#now = now;
    this.#buffered = buffered;
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

  /** Nothing answers a long message before it is there. */
  #noteUpload() {
    const before = this.#left;
    this.#left = this.#buffered();
    if (this.#left >= before || this.#receivedAt === null) return;
    this.received();
    for (const key of this.#waiting.keys()) this.sent(key);
  }

  /** Tests an open connection now: the reader is back. */
  check() {
    if (this.#receivedAt === null) return;
    this.#pingedAt = this.#now() - FRAME_IN + CHECKED_IN;
    this.#ping();
  }

  #noteSleep() {
    const before = this.#tickedAt;
    this.#tickedAt = Date.now();
    if (this.#tickedAt - before >= PING_AFTER) this.check();
  }

  tick() {
    const now = this.#now();
    this.#noteSleep();
    this.#noteUpload();
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
