// Connection to the server: a WebSocket or, if it is blocked, EventSource and fetch.
//
// Both have the same interface: subscribe to turns, send messages, cancel. Both report
// events with their position, turns that other pages opened, and whether they are
// connected. After a reconnect, messages without an acknowledgement are sent again with
// the same key, so that each arrives once, and subscriptions continue at their position.

import { ConnectionCheck, TICK } from "./connection-check.js";
import { Changes, readChanges } from "./polling/changes.js";
import { SocketTrials } from "./polling/socket-trials.js";
import { showPresent } from "./sharing/present.js";
import { gettext } from "./texts.js";
import { EVENT_TYPES, TERMINAL } from "./turn-state.js";

const FIRST_DELAY = 400; // milliseconds before the first new attempt
const LONGEST_DELAY = 8000;
const ATTEMPTS = 2; // failed WebSockets before we check the session, and fall back
const REFUSALS = 4; // failed WebSockets, once they worked, while other requests succeed
const REMOVED = 4404; // close code; the conversation is no longer shared with the user
const SIGNED_OUT = 4401; // close code; where a handshake is refused there is only 1006
const MAINTENANCE = "maintenance"; // code of an error that a person is to see at once
const BUSY = "server_busy"; // code of an error after which a message is sent again
const ACKNOWLEDGED_IN = 10_000; // milliseconds for a message posted
const EVENT_IN = 25_000; // milliseconds without an event after which a stream is renewed

/** The server refused a message; the text is the server's error message. */
export class Refused extends Error {}

/**
 * `listener` has onEvent(turnId, event, position), onTurn(turnId), onState(isConnected),
 * onRenamed(conversationId), onQueue(), onBranches(), onDecided(questionId),
 * onOpenQuestions(questionIds) and checkSession(), a promise of whether the session has
 * ended; the page is then left or covered. `csrfToken()` is that of now: a sign-in in
 * another tab changes it. `changesURL` answers what others have changed. What shows
 * a change may return a promise of false where it did not succeed.
 */
export function connect({ conversation, socketURL, turnsURL, changesURL, csrfToken, listener }) {
  const urls = { socketURL, turnsURL, changesURL };
  return new Connection({ conversation, ...urls, csrfToken, listener });
}

class Connection {
  #following = new Map(); // turn id -> its last position, or null
  #unsent = new Map(); // key -> {message, resolve, reject}, oldest first
  #way;
  #options;

  constructor(options) {
    this.#options = options;
    this.#way = this.#socketWay();
    addEventListener("online", () => this.#way.wake());
    addEventListener("offline", () => options.listener.onState(false));
    this.#way.open();
  }

  /** The id of the turn opened. Throws Refused; waits while the connection is lost. */
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

  /** The turns with these ids run after all others that are followed, in this order. */
  arrange(ids) {
    for (const id of ids) {
      if (!this.#following.has(id)) continue;
      const position = this.#following.get(id);
      this.#following.delete(id);
      this.#following.set(id, position);
    }
    this.#way.arranged();
  }

  #socketWay() {
    return new SocketWay(this.#options, this.#shared(), () => this.#fallBack());
  }

  #fallBack() {
    this.#way = new StreamWay(this.#options, this.#shared());
    this.#way.open();
    const onOpen = (socket, data) => this.#goBack(socket, data);
    new SocketTrials({ url: this.#options.socketURL, onOpen });
  }

  /** Goes on over a WebSocket that works again. */
  #goBack(socket, data) {
    this.#way.close();
    this.#way = this.#socketWay();
    this.#way.adopt(socket, data);
  }

  #shared() {
    const { listener } = this.#options;
    return {
      following: this.#following,
      unsent: this.#unsent,
      onState: listener.onState,
      onTurn: listener.onTurn,
      onRenamed: listener.onRenamed,
      onQueue: listener.onQueue,
      onBranches: listener.onBranches,
      onDecided: listener.onDecided,
      onOpenQuestions: listener.onOpenQuestions,
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
  #refusals = 0; // since the last frame
  #isChecking = false;
  #timer = 0;
  #ticking;
  #liveness = new ConnectionCheck({
    ping: () => this.#sendFrame({ type: "ping" }),
    lost: () => this.#dropped(),
  });

  constructor(options, shared, giveUp) {
    this.#options = options;
    this.#shared = shared;
    this.#giveUp = giveUp;
    this.#ticking = setInterval(() => this.#liveness.tick(), TICK);
  }

  open() {
    clearTimeout(this.#timer);
    this.#liveness.opening();
    this.#use(new WebSocket(this.#options.socketURL));
  }

  /** Goes on with an open socket, of which this is the first frame. */
  adopt(socket, data) {
    this.#use(socket);
    this.#opened();
    this.#received(JSON.parse(data));
  }

  #use(socket) {
    this.#socket = socket;
    socket.onopen = () => socket === this.#socket && this.#opened();
    socket.onmessage = ({ data }) => {
      if (socket === this.#socket) this.#received(JSON.parse(data));
    };
    socket.onclose = (event) => socket === this.#socket && this.#closed(event?.code);
  }

  /** Drops a silent connection without waiting for the server's close frame. */
  #dropped() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.#closed();
  }

  /** The network is back: reconnect, because a half-open connection is noticed late. */
  wake() {
    this.#socket?.close();
    this.open();
  }

  send(message) {
    const isSent = this.#sendFrame({
      type: "turn.create",
      key: message.key,
      ...inputOf(message),
    });
    if (isSent) this.#liveness.sent(message.key);
  }

  follow(turnId, after) {
    this.#sendFrame({ type: "turn.follow", turn: turnId, ...(after && { after }) });
  }

  stop(turnId) {
    this.#sendFrame({ type: "turn.cancel", turn: turnId });
  }

  arranged() {} // it follows all turns at once

  #sendFrame(message) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  #opened() {
    this.#wasOpen = true;
    this.#liveness.received();
    this.#shared.onState(true);
    for (const [turnId, after] of this.#shared.following) this.follow(turnId, after);
    for (const { message } of this.#shared.unsent.values()) this.send(message);
  }

  #closed(code) {
    this.#liveness.closed();
    this.#shared.onState(false);
    this.#failures += 1;
    if (code === REMOVED) {
      location.reload(); // the draft stays in the browser
      return;
    }
    if (code === SIGNED_OUT || this.#failures % ATTEMPTS === 0) {
      this.#shared.checkSession();
    }
    if (!this.#wasOpen && this.#failures >= ATTEMPTS) {
      this.#end();
      return;
    }
    this.#timer = setTimeout(() => this.open(), delay(this.#failures));
    if (this.#failures >= ATTEMPTS) this.#checkRefused();
  }

  /** Falls back on a network that has come to carry requests but no WebSockets. */
  async #checkRefused() {
    if (this.#isChecking) return;
    this.#isChecking = true;
    const { values } = await readChanges(this.#options.changesURL);
    this.#isChecking = false;
    if (this.#socket?.readyState === WebSocket.OPEN) return;
    this.#refusals = values ? this.#refusals + 1 : 0;
    if (this.#refusals >= REFUSALS) this.#end();
  }

  #end() {
    clearTimeout(this.#timer);
    clearInterval(this.#ticking);
    this.#liveness.closed();
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.#giveUp();
  }

  /** Sends a message again for which the server was too busy, with the same key. */
  #sendAgain({ key, error }) {
    const seconds = error.retry_after * (1 + Math.random()); // not all at once
    setTimeout(() => {
      const waiting = this.#shared.unsent.get(key);
      if (waiting) this.send(waiting.message);
    }, seconds * 1000);
  }

  #received(message) {
    this.#liveness.received();
    this.#failures = this.#refusals = 0;
    if (message.key) this.#liveness.acknowledged(message.key);
    switch (message.type) {
      case "parley:pong":
        return;
      case "parley:conversation.renamed":
        this.#shared.onRenamed(message.conversation);
        return;
      case "parley:presence":
        showPresent(message.people);
        return;
      case "parley:queue.changed":
        this.#shared.onQueue();
        return;
      case "parley:question.decided":
        this.#shared.onDecided(message.id);
        return;
      case "parley:branches.changed":
        this.#shared.onBranches?.();
        return;
      case "parley:turn.queued":
        if (message.key) this.#shared.accept(message.key, message.turn);
        else this.#shared.onTurn(message.turn);
        return;
      case "error":
        if (message.turn) this.#shared.onEvent(message.turn, message, message.position);
        else if (message.error.code === BUSY) this.#sendAgain(message);
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
  #renewSilent() {
    if (!this.#source || performance.now() - this.#heardAt < EVENT_IN) return;
    this.#source.close();
    this.#source = null;
    this.#next();
  }

  open() {
    this.#report(navigator.onLine);
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
    const answer = await response.json();
    if (response.ok) {
      this.#shared.accept(key, answer.id);
      this.#next();
    } else if ([401, 403].includes(response.status) && (await this.#shared.checkSession())) {
      throw new Error("signed out"); // the message is sent after signing in
    } else if (response.status < 500 || answer.error?.code === MAINTENANCE) {
      this.#shared.refuse(key, answer.error?.message ?? gettext("The message was refused."));
    } else {
      throw new Error(`the server answered ${response.status}`);
    }
  }

  #post(url, body, key) {
    const headers = {
      "Content-Type": "application/json",
      "X-CSRFToken": this.#options.csrfToken(),
      ...(key && { "Idempotency-Key": key }),
    };
    const signal = AbortSignal.timeout(ACKNOWLEDGED_IN);
    return fetch(url, { method: "POST", headers, body: JSON.stringify(body), signal });
  }
}

/** The input of a message: its text, or content parts with the files first. */
function inputOf({ text, model, parts, when, branch }) {
  const words = text.trim() ? [{ type: "input_text", text }] : [];
  const item = { type: "message", role: "user", content: [...(parts ?? []), ...words] };
  const input = parts?.length ? [item] : text;
  const place = { ...(when && { when }), ...(branch && { branch }) };
  return { input, ...(model && { model }), ...place };
}

function delay(failures) {
  const longest = Math.min(FIRST_DELAY * 2 ** (failures - 1), LONGEST_DELAY);
  return longest * (0.5 + Math.random() / 2); // so that not all come back at once
}
