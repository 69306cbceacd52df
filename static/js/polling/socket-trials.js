// Tries now and then whether a WebSocket opens again, on a page that does without one.
//
// A process without room refuses WebSockets for a while, and a laptop moves to another
// network. A socket counts once a frame has come through it: some proxies let it open
// and then carry nothing.

const EVERY = 180_000; // milliseconds
const LEAST = 20_000; // milliseconds between two trials, however often a tab is shown
const OPENED_IN = 10_000;

export class SocketTrials {
  #url;
  #onOpen;
  #socket = null;
  #triedAt = performance.now();
  #timer;
  #listening = new AbortController();

  /** `onOpen(socket, data)` gets the first socket that works, with its first frame. */
  constructor({ url, onOpen }) {
    this.#url = url;
    this.#onOpen = onOpen;
    this.#timer = setInterval(() => this.#try(), EVERY * (0.8 + 0.4 * Math.random()));
    const { signal } = this.#listening;
    addEventListener("online", () => this.#try(), { signal });
    document.addEventListener("visibilitychange", () => this.#try(), { signal });
    navigator.connection?.addEventListener("change", () => this.#try(), { signal });
  }

  #try() {
    const isEarly = performance.now() - this.#triedAt < LEAST;
    if (this.#socket || isEarly || document.hidden || !navigator.onLine) return;
    this.#triedAt = performance.now();
    const socket = new WebSocket(this.#url);
    this.#socket = socket;
    const timer = setTimeout(() => this.#drop(socket), OPENED_IN);
    socket.onopen = () => socket.send(JSON.stringify({ type: "ping" }));
    socket.onclose = () => {
      clearTimeout(timer);
      this.#drop(socket);
    };
    socket.onmessage = ({ data }) => {
      clearTimeout(timer);
      if (socket === this.#socket) this.#end(data);
    };
  }

  #drop(socket) {
    if (socket === this.#socket) this.#socket = null;
    socket.onmessage = null;
    socket.close();
  }

  #end(data) {
    clearInterval(this.#timer);
    this.#listening.abort();
    this.#onOpen(this.#socket, data);
  }
}
