// Loads a vendored library when it is first needed, and again where that failed.

const PAUSES = [1000, 2000, 4000, 8000, 16_000]; // milliseconds before each new attempt

export class Library {
  #load;
  #use;
  #loaded;
  #isLoading = false;
  #failures = 0;
  #timer = 0;

  /** `load` promises the library; `use` is given it, as often as it was needed. */
  constructor(load, use) {
    this.#load = load;
    this.#use = use;
    globalThis.addEventListener("online", () => this.#hurry());
  }

  /** Something waits for the library. */
  need() {
    if (this.#loaded !== undefined) this.#use(this.#loaded);
    else if (!this.#isLoading && !this.#timer) this.#attempt();
  }

  /** What was loaded does not answer any more: it is loaded anew. */
  forget() {
    this.#loaded = undefined;
  }

  async #attempt() {
    this.#timer = 0;
    this.#isLoading = true;
    try {
      this.#loaded = await this.#load();
      this.#failures = 0;
    } catch {
      this.#retry();
    }
    this.#isLoading = false;
    if (this.#loaded !== undefined) this.#use(this.#loaded);
  }

  /** After the last pause only a new need, or a network that is back, tries again. */
  #retry() {
    const pause = PAUSES[this.#failures];
    if (pause === undefined) return;
    this.#failures += 1;
    this.#timer = setTimeout(() => this.#attempt(), pause);
  }

  #hurry() {
    if (!this.#failures || this.#isLoading || this.#loaded !== undefined) return;
    clearTimeout(this.#timer);
    this.#attempt();
  }
}
