// Messages without a receipt yet, by user and conversation ("new" for a new chat). The
// offline page loads this module alone.

export const LAST_USER = "parley:last-user"; // whose pages this browser showed last

/** The page's user has signed out: nothing of theirs is stored any more. */
export let isForgotten = false;

const DAY = 24 * 3600_000; // milliseconds

/** Whether the server may have forgotten the message's key after so many days: sent again
 *  it could be sent twice. */
export const isTooOld = ({ at }, days) => Date.now() - at > days * DAY;

export class Waiting {
  #name;

  constructor(user, conversation) {
    this.#name = `parley:outbox:${user}:${conversation}`;
    this.#dateOlder();
  }

  /** Versions before this one stored no time: theirs counts from now on. */
  #dateOlder() {
    const found = this.messages;
    if (found.every(({ at }) => at)) return;
    this.#store(found.map((message) => ({ ...message, at: message.at ?? Date.now() })));
  }

  get messages() {
    try {
      const found = JSON.parse(localStorage.getItem(this.#name) ?? "[]");
      return Array.isArray(found) ? found : [];
    } catch {
      return [];
    }
  }

  /** False if the browser stores nothing. */
  add(message) {
    const found = this.messages;
    const index = found.findIndex(({ key }) => key === message.key);
    found.splice(index < 0 ? found.length : index, 1, message);
    return this.#store(found);
  }

  remove(key) {
    this.#store(this.messages.filter((message) => message.key !== key));
  }

  /** Stores a text that nobody has sent. It waits for a page that gives it back. */
  addUnsent(key, text) {
    return this.add({ key, text, parts: [], at: Date.now(), isUnsent: true });
  }

  /** Removes the texts that nobody has sent, and returns them. */
  takeUnsent() {
    const found = this.messages;
    const texts = found.filter(({ isUnsent }) => isUnsent).map(({ text }) => text);
    if (texts.length) this.#store(found.filter(({ isUnsent }) => !isUnsent));
    return texts;
  }

  #store(messages) {
    try {
      if (isForgotten) return false;
      if (messages.length) localStorage.setItem(this.#name, JSON.stringify(messages));
      else localStorage.removeItem(this.#name);
      return true;
    } catch {
      return false;
    }
  }
}

export function rememberUser(user) {
  try {
    localStorage.setItem(LAST_USER, user);
  } catch {
    // Without storage there is nothing to send later.
  }
}

export function forgetUser() {
  isForgotten = true;
  try {
    localStorage.removeItem(LAST_USER);
  } catch {
    // Without storage nobody was remembered.
  }
}

/** Null where there was none, or where the browser denies storage. */
export function lastUser() {
  try {
    return localStorage.getItem(LAST_USER);
  } catch {
    return null;
  }
}
