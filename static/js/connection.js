// The way to the server: a WebSocket, or where none gets through, EventSource and fetch.
//
// Both are told the same: what to follow, what to send, what to stop. They report the
// same: events with their position, turns that others opened, and whether we are
// connected. Whatever was not acknowledged is sent again after a reconnect, under the
// same key, so that it arrives once; whatever is followed goes on where it stopped.

import { Liveness, TICK } from "./liveness.js";
import { EVENT_TYPES, TERMINAL } from "./turn-state.js";

const FIRST_DELAY = 400; // milliseconds before the first new attempt
const LONGEST_DELAY = 8000;
const ATTEMPTS = 2; // failed WebSockets before we check the session, and fall back
const SIGNED_OUT = 4401; // close code; where a handshake is refused there is only 1006
const ACKNOWLEDGED_IN = 10_000; // milliseconds for a message posted
const EVENT_IN = 25_000; // milliseconds without an event after which a stream is renewed

/** The server's own words why it does not take a message. */
export class Refused extends Error {}

/**
 * `listener` has onEvent(turnId, event, position), onTurn(turnId), onState(isConnected),
 * onRenamed(conversationId) and checkSession(), a promise of whether the session has
 * ended; the page is then left.
 */
export function connect({ socketURL, turnsURL, csrfToken, listener }) {
  return new Connection({ socketURL, turnsURL, csrfToken, listener });
}

class Connection {
  #following = new Map(); // turn id -> its last position, or null
  #unsent = new Map(); // key -> {message, resolve, reject}, oldest first
  #way;
  #options;

  constructor(options) {
    this.#options = options;
    this.#way = new SocketWay(options, this.#shared(), () => this.#fallBack());
    addEventListener("online", () => this.#way.wake());
    addEventListener("offline", () => options.listener.onState(false));
    this.#way.open();
  }

  /** The id of the turn opened. Throws Refused; waits out a lost connection. */
  send(message) {
    return new Promise((resolve, reject) => {
      this.#unsent.set(message.key, { message, resolve, reject });
      this.#way.send(message);
    });
  }

  follow(turnId, after = null) {
    if (this.#following.has(turnId)) return;
    this.#following.set(turnId, after);
    this.#way.follow(turnId, after);
  }

  stop(turnId) {
    this.#way.stop(turnId);
  }

  #fallBack() {
    this.#way = new StreamWay(this.#options, this.#shared());
    this.#way.open();
  }

  #shared() {
    const { listener } = this.#options;
    return {
      following: this.#following,
      unsent: this.#unsent,
      onState: listener.onState,
      onTurn: listener.onTurn,
      onRenamed: listener.onRenamed,
      checkSession: listener.checkSession,
      onEvent: (turnId, event, position) => {
        if (TERMINAL.has(event.type)) this.#following.delete(turnId);
        else if (this.#following.has(turnId)) this.#following.set(turnId, position);
        listener.onEvent(turnId, event, position);
      },
      accept: (key, turnId) => {
        const sent = this.#unsent.get(key);
        this.#unsent.delete(key);
        if (!sent) return;
        this.#following.set(turnId, null);
        sent.resolve(turnId);
      },
      refuse: (key, words) => {
        const sent = this.#unsent.get(key);
        this.#unsent.delete(key);
        sent?.reject(new Refused(words));
      },
    };
  }
}

class SocketWay {
  #options;
  #shared;
  #giveUp;
  #socket = null;
  #failures = 0;
  #wasOpen = false;
  #timer = 0;
  #liveness = new Liveness({
    ping: () => this.#tell({ type: "ping" }),
    lost: () => this.#dropped(),
  });

  constructor(options, shared, giveUp) {
    this.#options = options;
    this.#shared = shared;
    this.#giveUp = giveUp;
    setInterval(() => this.#liveness.tick(), TICK);
  }

  open() {
    clearTimeout(this.#timer);
    this.#liveness.opening();
    const socket = new WebSocket(this.#options.socketURL);
    this.#socket = socket;
    socket.onopen = () => socket === this.#socket && this.#opened();
    socket.onmessage = ({ data }) => {
      if (socket === this.#socket) this.#received(JSON.parse(data));
    };
    socket.onclose = (event) => socket === this.#socket && this.#closed(event?.code);
  }

  /** Nothing comes any more: closing it would wait for an answer, too. */
  #dropped() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.#closed();
  }

  /** The network is back: what hangs half open would take long to notice. */
  wake() {
    this.#socket?.close();
    this.open();
  }

  send(message) {
    const isSent = this.#tell({
      type: "turn.create",
      key: message.key,
      ...asked(message),
    });
    if (isSent) this.#liveness.sent(message.key);
  }

  follow(turnId, after) {
    this.#tell({ type: "turn.follow", turn: turnId, ...(after && { after }) });
  }

  stop(turnId) {
    this.#tell({ type: "turn.cancel", turn: turnId });
  }

  #tell(message) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  #opened() {
    this.#failures = 0;
    this.#wasOpen = true;
    this.#liveness.heard();
    this.#shared.onState(true);
    for (const [turnId, after] of this.#shared.following) this.follow(turnId, after);
    for (const { message } of this.#shared.unsent.values()) this.send(message);
  }

  #closed(code) {
    this.#liveness.closed();
    this.#shared.onState(false);
    this.#failures += 1;
    if (code === SIGNED_OUT || this.#failures % ATTEMPTS === 0) {
      this.#shared.checkSession();
    }
    if (!this.#wasOpen && this.#failures >= ATTEMPTS) this.#giveUp();
    else this.#timer = setTimeout(() => this.open(), delay(this.#failures));
  }

  #received(message) {
    this.#liveness.heard();
    if (message.key) this.#liveness.acknowledged(message.key);
    switch (message.type) {
      case "parley:pong":
        return;
      case "parley:conversation.renamed":
        this.#shared.onRenamed(message.conversation);
        return;
      case "parley:turn.queued":
        if (message.key) this.#shared.accept(message.key, message.turn);
        else this.#shared.onTurn(message.turn);
        return;
      case "error":
        if (message.turn) this.#shared.onEvent(message.turn, message, message.position);
        else if (message.key) this.#shared.refuse(message.key, message.error.message);
        return;
      default:
        if (message.turn) this.#shared.onEvent(message.turn, message, message.position);
    }
  }
}

class StreamWay {
  #options;
  #shared;
  #source = null;
  #turnId = "";
  #failures = 0;
  #sending = false;
  #heardAt = 0;

  constructor(options, shared) {
    this.#options = options;
    this.#shared = shared;
    setInterval(() => this.#renewSilent(), TICK);
  }

  /** A stream on which nothing comes may be half open: it is asked for once more. */
  #renewSilent() {
    if (!this.#source || performance.now() - this.#heardAt < EVENT_IN) return;
    this.#source.close();
    this.#source = null;
    this.#next();
  }

  open() {
    this.#shared.onState(navigator.onLine);
    this.#next();
    this.#sendAll();
  }

  wake() {
    this.#source?.close();
    this.#source = null;
    this.open();
  }

  send() {
    this.#sendAll();
  }

  follow() {
    this.#next();
  }

  async stop(turnId) {
    await this.#post(`/api/turns/${turnId}/cancel/`, {}).catch(() => {});
  }

  /** One stream at a time: turns of a conversation run one after another. */
  #next() {
    if (this.#source) return;
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
    this.#shared.onState(true);
  }

  #received({ data, lastEventId }) {
    if (!data) return; // EventSource's own "error" carries none
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
      this.#shared.onState(false); // it tries again by itself
      return;
    }
    this.#source = null;
    this.#shared.onState(false);
    this.#shared.checkSession();
    setTimeout(() => this.#next(), delay(++this.#failures));
  }

  async #sendAll() {
    if (this.#sending) return;
    this.#sending = true;
    while (this.#shared.unsent.size) {
      const [{ message }] = this.#shared.unsent.values();
      try {
        await this.#create(message);
        this.#shared.onState(true);
      } catch {
        this.#shared.onState(false);
        await new Promise((resolve) => setTimeout(resolve, delay(++this.#failures)));
      }
    }
    this.#sending = false;
  }

  async #create(message) {
    const { key } = message;
    const response = await this.#post(this.#options.turnsURL, asked(message), key);
    const answer = await response.json();
    if (response.ok) {
      this.#shared.accept(key, answer.id);
      this.#next();
    } else if ([401, 403].includes(response.status) && (await this.#shared.checkSession())) {
      throw new Error("signed out"); // the message is sent after signing in
    } else if (response.status < 500) {
      this.#shared.refuse(key, answer.error?.message ?? "The message was refused.");
    } else {
      throw new Error(`the server answered ${response.status}`);
    }
  }

  #post(url, body, key) {
    const headers = {
      "Content-Type": "application/json",
      "X-CSRFToken": this.#options.csrfToken,
      ...(key && { "Idempotency-Key": key }),
    };
    const signal = AbortSignal.timeout(ACKNOWLEDGED_IN);
    return fetch(url, { method: "POST", headers, body: JSON.stringify(body), signal });
  }
}

/** What both ways send: words alone, or a message whose files come first. */
function asked({ text, model, parts }) {
  const words = text.trim() ? [{ type: "input_text", text }] : [];
  const said = { type: "message", role: "user", content: [...(parts ?? []), ...words] };
  return { input: parts?.length ? [said] : text, ...(model && { model }) };
}

function delay(failures) {
  const longest = Math.min(FIRST_DELAY * 2 ** (failures - 1), LONGEST_DELAY);
  return longest * (0.5 + Math.random() / 2); // so that not all come back at once
}
