// Looks again and again for what is new on the server, one look at a time.
//
// A look that fails does not end them. While nobody sees the page they are rare, and a
// server that names a time to wait gets it.

const LONGEST_REST = 300_000; // milliseconds; a captive portal may name any time

export class Rounds {
  #look;
  #every;
  #whileHidden;
  #timer = 0;
  #restUntil = 0;
  #isLooking = false;
  #isStopped = false;

  /**
   * `look()` may return the milliseconds until the next one instead of `every`;
   * `whileHidden` are the least while nobody sees the page, without it for ever.
   */
  constructor({ look, every, whileHidden = Infinity }) {
    this.#look = look;
    this.#every = every;
    this.#whileHidden = whileHidden;
    document.addEventListener("visibilitychange", () => document.hidden || this.soon());
  }

  /** Looks at once; while a look is under way or the server wants a rest, after that. */
  soon() {
    if (!this.#isLooking) this.plan(0);
  }

  /** Looks after so many milliseconds, or later. */
  plan(wait = this.#every) {
    clearTimeout(this.#timer);
    if (this.#isStopped) return;
    const least = document.hidden ? this.#whileHidden : 0;
    const longest = Math.max(wait, least, this.#restUntil - performance.now());
    if (longest < Infinity) this.#timer = setTimeout(() => this.#begin(), longest);
  }

  /** Leaves the server alone for so many seconds, whatever happens. */
  rest(seconds) {
    const milliseconds = Math.min(1000 * seconds, LONGEST_REST);
    this.#restUntil = performance.now() + milliseconds;
  }

  stop() {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  async #begin() {
    let wait;
    this.#isLooking = true;
    try {
      wait = await this.#look();
    } finally {
      this.#isLooking = false;
      this.plan(wait);
    }
  }
}

/** The seconds that the server wants to be left alone; 0 where it names none. */
export function restOf(response) {
  const seconds = Number(response.headers.get("Retry-After"));
  return seconds > 0 ? seconds : 0; // a date is not a number
}
