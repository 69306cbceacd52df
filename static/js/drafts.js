// Texts that are not sent yet, by their author and conversation.
//
// Each page of a new chat has a draft of its own, which its tab finds again after a
// reload. One that a tab has left without sending is found by the next new tab, also if
// the tab ended without a sign, as by a crash: an open page has a lock with the name of
// its draft. Browsers have locks on https only; without them a draft that nobody has
// changed for an hour counts as left, and a copy of a tab begins with the tab's text.

import { newKey } from "./dom.js";
import { local, session } from "./stored.js";

const LIFE = 30 * 24 * 3600_000; // milliseconds of a new chat's draft
const QUIET = 3600_000; // milliseconds without a change in a tab that is open

/** `{name, read(), readLost(), store(text, choices), choices}`; `name` is that of what the
 *  browser stores, `readLost()` a promise of a text that is found later than the page opens,
 *  and `choices` those of a new chat that were stored with the text which was read. */
export function draftOf(user, conversation) {
  const prefix = `parley:draft:${user}:`;
  return conversation ? new Draft(prefix + conversation) : new NewDraft(`${prefix}new`);
}

class Draft {
  constructor(name) {
    this.name = name;
  }

  read() {
    return local.get(this.name) ?? "";
  }

  async readLost() {
    return "";
  }

  store(text) {
    local.set(this.name, text);
  }
}

class NewDraft {
  #base;
  #before; // the name of this tab's last draft, which a copy of the tab knows, too
  #found;
  #choices; // as last stored

  constructor(base) {
    this.#base = base;
    this.#before = session.get(base);
    this.name = `${base}:${newKey()}`;
    session.set(base, this.name);
    const isFree = ({ isLeft, name }) => isLeft || (!navigator.locks && name === this.#before);
    this.#found = this.#choose(draftsOf(base).filter(isFree));
    if (this.#found?.isLeft) local.remove(this.#found.name); // else a copy may show it
    this.store(this.read(), this.choices);
    navigator.locks?.request(this.name, () => new Promise(() => {})).catch(() => {});
    addEventListener("pagehide", () => this.#leave());
  }

  read() {
    return this.#found?.text ?? "";
  }

  get choices() {
    return this.#found?.choices;
  }

  /** Two tabs that a browser restores do not take the same one. */
  async readLost() {
    if (this.#found || !navigator.locks) return "";
    try {
      return await navigator.locks.request(this.#base, () => this.#takeLost());
    } catch {
      return ""; // the page is being left
    }
  }

  async #takeLost() {
    const { held } = await navigator.locks.query();
    const open = new Set(held.map(({ name }) => name));
    const lost = this.#choose(draftsOf(this.#base).filter(({ name }) => !open.has(name)));
    if (lost) local.remove(lost.name);
    this.#found = lost;
    return lost?.text ?? "";
  }

  /** A tab that had a draft goes on with that one alone. */
  #choose(drafts) {
    return this.#before ? drafts.find(({ name }) => name === this.#before) : newest(drafts);
  }

  store(text, choices = this.#choices, isLeft = false) {
    this.#choices = choices;
    local.set(this.name, text && JSON.stringify({ text, choices, at: Date.now(), isLeft }));
  }

  #leave() {
    const { text } = parsed(local.get(this.name)) ?? {};
    if (text) this.store(text, this.#choices, true);
  }
}

/** All new chats' drafts of this user; deletes those that are too old. */
function draftsOf(base) {
  const found = [];
  for (const name of local.names) {
    if (name !== base && !name.startsWith(`${base}:`)) continue;
    const stored = local.get(name);
    // Versions before this one stored the text alone, for all tabs.
    const draft = name === base ? { text: stored, at: Date.now(), isLeft: true } : parsed(stored);
    const age = Date.now() - draft?.at;
    if (age < LIFE) found.push({ ...draft, isLeft: draft.isLeft || isQuiet(age), name });
    else local.remove(name);
  }
  return found;
}

const isQuiet = (age) => !navigator.locks && age > QUIET;

function parsed(stored) {
  try {
    const { text, at, isLeft, choices } = JSON.parse(stored);
    return { text: String(text), at: Number(at), isLeft: Boolean(isLeft), choices };
  } catch {
    return null;
  }
}

const newest = (drafts) => drafts.sort((a, b) => b.at - a.at)[0];
