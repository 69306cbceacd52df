// The connection where a WebSocket is blocked: EventSource and fetch.

import { TICK } from "../connection-check.js";
import { delay, inputOf } from "../sending.js";
import { gettext } from "../texts.js";
import { EVENT_TYPES, TERMINAL } from "../turn-state.js";
import { Changes } from "./changes.js";

const MAINTENANCE = "maintenance"; // code of an error
const ACKNOWLEDGED_IN = 10_000; // milliseconds for a message
const SLOWEST = 4; // characters per millisecond
const PASSING = [401, 403, 408, 425, 429]; // may pass
const EVENT_IN = 25_000; // milliseconds without an event after which a stream is renewed
const SOON = 4000; // when the reader is back

export class StreamWay {
  #options;
  #shared;
  #source = null;
  #turnId = "";
  #failures = 0;
  #sending = false;
  #stopping = new Set(); // ids of turns
  #heardAt = 0;
  #isClosed = false;
  #ticking;
  #changes; // instead of a WebSocket's notifications

  constructor(options, shared) {
    this.#options = options;
    this.#shared = shared;
    this.#ticking = setInterval(() => this.#renewSilent(), TICK);
    const { changesURL: url, conversation } = options;
    const onReached = (isReached) => this.#source || this.#report(isReached);
    this.#changes = new Changes({ url, conversation, shared, onReached });
  }

  /** Another way goes on; what is being sent may end, for each message has its key. */
  close() {
    this.#isClosed = true;
    clearInterval(this.#ticking);
    this.#source?.close();
    this.#source = null;
    this.#changes.finish();
  }

  #report(isConnected) {
    if (!this.#isClosed) this.#shared.onState(isConnected);
  }

  /** Opens a silent stream again, because it may be half open. */
  #renewSilent(patience = EVENT_IN) {
    if (!this.#source || performance.now() - this.#heardAt < patience) return;
    this.#source.close();
    this.#source = null;
    this.#next();
  }

  open() {
    this.#report(navigator.onLine);
    this.#next();
    this.#sendAll();
    for (const turnId of this.#shared.stops) this.stop(turnId);
  }

  wake() {
    this.#source?.close();
    this.#source = null;
    this.open();
  }

  check() {
    this.#renewSilent(SOON);
  }

  send() {
    this.#sendAll();
  }

  follow() {
    this.#next();
  }

  async stop(turnId) {
    if (this.#stopping.has(turnId)) return;
    this.#stopping.add(turnId);
    let failures = 0;
    while (!this.#isClosed && !(await this.#isStopTaken(turnId))) {
      await new Promise((resolve) => setTimeout(resolve, delay(++failures)));
      if (!this.#shared.stops.has(turnId)) break; // its end has come meanwhile
    }
    this.#stopping.delete(turnId);
  }

  /** Whether the server has answered, be it with a refusal. */
  async #isStopTaken(turnId) {
    const answer = await this.#post(`/api/turns/${turnId}/cancel/`, {}).catch(() => null);
    if (!answer || answer.status >= 500) return false;
    if ([401, 403].includes(answer.status) && (await this.#shared.checkSession())) return false;
    if (!answer.ok) this.#shared.refuseStop(turnId, await wordsOf(answer));
    return true;
  }

  /** Follows the turn that runs first now. */
  arranged() {
    const [first] = this.#shared.following.keys();
    if (!this.#source || first === this.#turnId) return;
    this.#source.close();
    this.#source = null;
    this.#next();
  }

  /** One stream at a time: turns of a conversation run one after another. */
  #next() {
    if (this.#source || this.#isClosed) return;
    const [first] = this.#shared.following;
    if (!first) return;
    const [turnId, after] = first;
    const query = after ? `?after=${after}` : "";
    this.#turnId = turnId;
    this.#heardAt = performance.now();
    this.#source = new EventSource(`/api/turns/${turnId}/events/${query}`);
    this.#source.onopen = () => this.#opened();
    this.#source.onerror = () => this.#lost();
    for (const type of [...EVENT_TYPES, "error"]) {
      this.#source.addEventListener(type, (message) => this.#received(message));
    }
  }

  #opened() {
    this.#failures = 0;
    this.#report(true);
  }

  #received({ data, lastEventId }) {
    if (!data || this.#isClosed) return; // EventSource's own "error" carries none
    this.#heardAt = performance.now();
    const event = JSON.parse(data);
    const turnId = this.#turnId;
    if (TERMINAL.has(event.type)) {
      this.#source.close();
      this.#source = null;
    }
    this.#shared.onEvent(turnId, event, lastEventId);
    this.#next();
  }

  #lost() {
    if (!this.#source) return;
    if (this.#source.readyState !== EventSource.CLOSED) {
      this.#report(false); // it tries again by itself
      return;
    }
    this.#source = null;
    this.#report(false);
    this.#shared.checkSession();
    this.#forgetDeleted(this.#turnId);
    setTimeout(() => this.#next(), delay(++this.#failures));
  }

  /** A message that was removed, or has joined another turn, has no events. */
  async #forgetDeleted(turnId) {
    const found = await fetch(`/api/turns/${turnId}/`).catch(() => null);
    if (found?.status !== 404) return;
    this.#shared.following.delete(turnId);
    this.#shared.onEvent(turnId, { type: "error" }, undefined);
  }

  async #sendAll() {
    if (this.#sending) return;
    this.#sending = true;
    while (this.#shared.unsent.size && !this.#isClosed) {
      const [{ message }] = this.#shared.unsent.values();
      try {
        await this.#create(message);
        this.#report(true);
      } catch {
        this.#report(false);
        await new Promise((resolve) => setTimeout(resolve, delay(++this.#failures)));
      }
    }
    this.#sending = false;
  }

  async #create(message) {
    const { key } = message;
    const response = await this.#post(this.#options.turnsURL, inputOf(message), key);
    const { status } = response;
    const answer = await response.json().catch(() => null);
    const isFinal = answer?.error || (status >= 400 && !PASSING.includes(status));
    if (response.ok && answer) {
      this.#shared.accept(key, answer.id);
      this.#next();
    } else if ([401, 403].includes(status) && (await this.#shared.checkSession())) {
      throw new Error("signed out"); // the message is sent after signing in
    } else if ((isFinal && status < 500) || answer?.error?.code === MAINTENANCE) {
      this.#shared.refuse(key, answer?.error?.message ?? gettext("The message was refused."));
    } else {
      throw new Error(`the server answered ${status}`);
    }
  }

  #post(url, content, key) {
    const headers = {
      "Content-Type": "application/json",
      "X-CSRFToken": this.#options.csrfToken(),
      ...(key && { "Idempotency-Key": key }),
    };
    const body = JSON.stringify(content);
    const signal = AbortSignal.timeout(Math.ceil(ACKNOWLEDGED_IN + body.length / SLOWEST));
    return fetch(url, { method: "POST", headers, body, signal });
  }
}

async function wordsOf(response) {
  const answer = await response.json().catch(() => null);
  return answer?.error?.message ?? gettext("The server could not be reached.");
}
