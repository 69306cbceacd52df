// Texts that are not sent yet, by their author and conversation.
//
// Each page has a draft of its own, which its tab finds again after a reload: two tabs of a
// chat do not overwrite each other's. One that a tab has left without sending is found by
// the next tab with a new chat, or with the same chat, also if the tab ended without a sign,
// as by a crash: an open page has a lock with the name of its draft. Browsers have locks on
// https only; without them a draft that nobody has changed for an hour counts as left, and
// a copy of a tab begins with the tab's text.

import { newKey } from "./dom.js";
import { local, session } from "./stored.js";

const LIFE = 30 * 24 * 3600_000; // milliseconds of a new chat's draft
const QUIET = 3600_000; // milliseconds without a change in a tab that is open

/** `{name, read(), readLost(), store(text, choices), choices}`; `name` is that of what the
 *  browser stores, `readLost()` a promise of a text that is found later than the page opens,
 *  and `choices` those of a new chat that were stored with the text which was read. */
export function draftOf(user, conversation) {
  const prefix = `parley:draft:${user}:`;
  return new Draft(prefix + (conversation || "new"), !conversation);
}

class Draft {
  #base;
  #isNew;
  #before; // the name of this tab's last draft, which a copy of the tab knows, too
  #found;
  #choices; // as last stored

  constructor(base, isNew) {
    this.#base = base;
    this.#isNew = isNew;
    this.#before = session.get(base);
    this.name = `${base}:${newKey()}`;
    session.set(base, this.name);
    const isFree = ({ isLeft, name }) => isLeft || (!navigator.locks && name === this.#before);
    this.#found = this.#choose(this.#stored().filter(isFree));
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
    const lost = this.#choose(this.#stored().filter(({ name }) => !open.has(name)));
    if (lost) local.remove(lost.name);
    this.#found = lost;
    return lost?.text ?? "";
  }

  #stored() {
    return draftsOf(this.#base, this.#isNew ? LIFE : Infinity);
  }

  /** A tab that had a draft of a new chat goes on with that one alone. */
  #choose(drafts) {
    const own = drafts.find(({ name }) => name === this.#before);
    return own ?? (this.#isNew && this.#before ? undefined : newest(drafts));
  }

  store(text, choices = this.#choices, isLeft = false) {
    this.#choices = this.#isNew ? choices : undefined;
    const draft = { text, choices: this.#choices, at: Date.now(), isLeft };
    local.set(this.name, text && JSON.stringify(draft));
  }

  #leave() {
    const { text } = parsed(local.get(this.name)) ?? {};
    if (text) this.store(text, this.#choices, true);
  }
}

/** All drafts with this base; deletes those that are older than `life`. */
function draftsOf(base, life) {
  const found = [];
  for (const name of local.names) {
    if (name !== base && !name.startsWith(`${base}:`)) continue;
    const stored = local.get(name);
    // Versions before this one stored the text alone, for all tabs.
    const draft = name === base ? { text: stored, at: Date.now(), isLeft: true } : parsed(stored);
    const age = Date.now() - draft?.at;
    if (age < life) found.push({ ...draft, isLeft: draft.isLeft || isQuiet(age), name });
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
