// Connection to the server: a WebSocket or, if it is blocked, EventSource and fetch.
//
// After a reconnect, messages without an acknowledgement are sent again with the same key,
// and subscriptions continue. A turn is told to stop until it ends, or the server refuses.

import { ConnectionCheck, TICK } from "./connection-check.js";
import { readChanges } from "./polling/changes.js";
import { SocketTrials } from "./polling/socket-trials.js";
import { StreamWay } from "./polling/stream-way.js";
import { delay, inputOf } from "./sending.js";
import { showPresent } from "./sharing/present.js";
import { gettext } from "./texts.js";
import { TERMINAL } from "./turn-state.js";

const ATTEMPTS = 2; // failed WebSockets before we check the session, and fall back
const REFUSALS = 4; // failed WebSockets that had worked, while requests succeed
const REMOVED = 4404; // close code; the conversation is gone, or no longer shared with the user
const SIGNED_OUT = 4401; // close code; where a handshake is refused there is only 1006
const TOO_LARGE = 1009; // close code; a frame was larger than the server reads
const BUSY = "server_busy"; // code of an error: send again

/** The server refused a message; the text is the server's error message. */
export class Refused extends Error {}

/**
 * `listener.checkSession()` is a promise of whether the session has ended; onGoesOn means
 * that the server refuses a stop. What shows a change may return a promise of false.
 */
export function connect({ conversation, socketURL, turnsURL, changesURL, csrfToken, listener }) {
  const urls = { socketURL, turnsURL, changesURL };
  return new Connection({ conversation, ...urls, csrfToken, listener });
}

class Connection {
  #following = new Map(); // turn id -> its last position, or null
  #stops = new Set(); // ids of the turns that are to stop
  #unsent = new Map(); // key -> {message, resolve, reject}, oldest first
  #way;
  #options;

  constructor(options) {
    this.#options = options;
    this.#way = this.#socketWay();
    addEventListener("online", () => this.#way.wake());
    addEventListener("offline", () => options.listener.onState(false));
    document.addEventListener("visibilitychange", () => document.hidden || this.#way.check());
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
    if (this.#following.has(turnId)) this.#stops.add(turnId); // until its end comes
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
      stops: this.#stops,
      unsent: this.#unsent,
      onState: listener.onState,
      onTurn: listener.onTurn,
      onRenamed: listener.onRenamed,
      onQueue: listener.onQueue,
      onBranches: listener.onBranches,
      onDecided: listener.onDecided,
      onOpenQuestions: listener.onOpenQuestions,
      checkSession: listener.checkSession,
      onRemoved: listener.onRemoved,
      onEvent: (turnId, event, position) => {
        if (TERMINAL.has(event.type) || !position) this.#stops.delete(turnId);
        if (TERMINAL.has(event.type) || !position) this.#following.delete(turnId);
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
      refuseStop: (turnId, words) => {
        if (this.#stops.delete(turnId)) listener.onGoesOn(turnId, words);
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
    buffered: () => this.#socket?.bufferedAmount ?? 0,
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

  /** The reader is back, perhaps after a sleep. */
  check() {
    const state = this.#socket?.readyState;
    if (state === WebSocket.OPEN) this.#liveness.check();
    else if (state !== WebSocket.CONNECTING) this.open();
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
    this.#sendFrame({ type: "turn.cancel", turn: turnId, key: turnId });
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
    for (const turnId of this.#shared.stops) this.stop(turnId);
  }

  #closed(code) {
    this.#liveness.closed();
    this.#shared.onState(false);
    this.#failures += 1;
    if (code === REMOVED) {
      this.#shared.onRemoved();
      return;
    }
    if (code === TOO_LARGE) this.#refuseLargest();
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
      if (this.#shared.stops.has(key)) this.stop(key);
    }, seconds * 1000);
  }

  /** Sent again, it would close each connection. */
  #refuseLargest() {
    const size = ({ message }) => message.text.length;
    const [largest] = [...this.#shared.unsent.values()].sort((a, b) => size(b) - size(a));
    if (largest) this.#shared.refuse(largest.message.key, gettext("The message was refused."));
  }

  /** The key of a stop is its turn's id. */
  #refused({ key, error }) {
    if (this.#shared.stops.has(key)) this.#shared.refuseStop(key, error.message);
    else this.#shared.refuse(key, error.message);
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
        else if (message.key) this.#refused(message);
        return;
      default:
        if (message.turn) this.#shared.onEvent(message.turn, message, message.position);
    }
  }
}
