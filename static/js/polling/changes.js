// What others change, on a page without a WebSocket: compared at intervals.
//
// A value is remembered only once the page has acted on it, so that what failed is tried
// again at the next look.

import { showPresent } from "../sharing/present.js";
import { Rounds, restOf } from "./rounds.js";

const EVERY = 3000; // milliseconds between two looks
const WHILE_HIDDEN = 60_000; // for notifications
const ANSWERED_IN = 10_000;

export class Changes {
  #options;
  #rounds;
  #seen = {}; // what others may change, as the page shows it
  #isFinishing = false;

  /**
   * `shared` has onRenamed(conversationId), onBranches(), onQueue(), each with a promise
   * of false where it did not succeed, onOpenQuestions(ids), onRemoved() and checkSession().
   * `onReached(isReached)` gets whether the server answered a look.
   */
  constructor({ url, conversation, shared, onReached }) {
    this.#options = { url, conversation, shared, onReached };
    const look = () => this.#look();
    this.#rounds = new Rounds({ look, every: EVERY, whileHidden: WHILE_HIDDEN });
    this.#rounds.plan(0);
  }

  /** Ends with a look from now on that succeeds: until now nobody else has told. */
  finish() {
    this.#isFinishing = true;
    this.#rounds.soon();
  }

  async #look() {
    if (!navigator.onLine) return;
    const { url, shared, onReached } = this.#options;
    const isLast = this.#isFinishing;
    const { status, rest, values } = await readChanges(url);
    if (rest) this.#rounds.rest(rest);
    onReached(values !== null || (status >= 400 && status < 500));
    if (status === 404) shared.onRemoved();
    if ([401, 403].includes(status)) await shared.checkSession();
    if (values && (await this.#compare(values)) && isLast) this.#rounds.stop();
  }

  /** Whether the page shows all that is new. */
  async #compare(now) {
    const { conversation, shared } = this.#options;
    const renamed = now.title === this.#seen.title ? null : conversation;
    const shown = await Promise.all([
      this.#show(now, ["title", "titles"], () => shared.onRenamed(renamed)),
      this.#show(now, ["branches"], () => shared.onBranches()),
      this.#show(now, ["queue"], () => shared.onQueue()),
    ]);
    shared.onOpenQuestions(now.open_questions);
    if (now.present) showPresent(now.present); // null: not known yet
    return shown.every(Boolean);
  }

  async #show(now, names, act) {
    if (names.every((name) => now[name] === this.#seen[name])) return true;
    if ((await act()) === false) return false;
    for (const name of names) this.#seen[name] = now[name];
    return true;
  }
}

/**
 * Asks the server: `status` is 0 where it was not reached, `rest` are the seconds that it
 * wants to be left alone, and `values` are null unless they are the server's own. The
 * page of a captive portal, for one, is none of them.
 */
export async function readChanges(url) {
  const nothing = { status: 0, rest: 0, values: null };
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(ANSWERED_IN) });
    const { ok, status } = response;
    if (!ok) return { status, rest: restOf(response), values: null };
    const values = await response.json();
    return Array.isArray(values?.open_questions) ? { ...nothing, status, values } : nothing;
  } catch {
    return nothing; // no network, a body that broke off, or no JSON
  }
}
