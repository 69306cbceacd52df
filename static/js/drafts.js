// Texts and uploaded files that are not sent yet, by their author and conversation.
//
// Each page has a draft of its own, which its tab finds again after a reload. One that a tab
// has left without sending is found by the next tab with a new chat, or with the same chat,
// also after a crash: an open page has a lock with the name of its draft. Browsers have
// locks on https only; without them a draft that is unchanged for an hour counts as left, a
// copy of a tab begins with the tab's draft, and a tab that is new to a chat with a copy of
// the last text there: its own tab may have crashed.

import { newKey } from "./dom.js";
import { isForgotten } from "./people/waiting.js";
import { local, session } from "./stored.js";

const LIFE = 30 * 24 * 3600_000; // milliseconds of a new chat's draft
const QUIET = 3600_000; // milliseconds without a change in a tab that is open

/** `shown` is the text that the page opens with, as of a saved prompt: a draft with another
 *  text stays for a page without one.
 *  `{name, read(), readLost(), store(text, choices, isUnusual), storeFiles(files), choices,
 *  files}`; `name` is that of what the browser stores, `readLost()` a promise of a text that
 *  is found later than the page opens, `choices` those of a new chat, and `files` those of
 *  the message, that were stored with the text which was read. Unusual choices are stored
 *  without a text, too, but only the same tab finds them. */
export function draftOf(user, conversation, shown = "") {
  const prefix = `parley:draft:${user}:`;
  return new Draft(prefix + (conversation || "new"), !conversation, shown);
}

class Draft {
  #base;
  #isNew;
  #before; // the name of this tab's last draft, which a copy of the tab knows, too
  #found;
  #text = ""; // as last stored, as are the others
  #choices;
  #isUnusual = false;
  #files = [];

  constructor(base, isNew, shown) {
    this.#base = base;
    this.#isNew = isNew;
    this.#before = session.get(base);
    this.name = `${base}:${newKey()}`;
    const found = this.#choose(this.#stored().filter((draft) => this.#isFree(draft)));
    if (!shown || found?.text === shown) {
      this.#found = found;
      session.set(base, this.name);
    }
    if (this.#isMine) this.#begin();
    if (this.#found?.isLeft) local.remove(this.#found.name); // else a copy may show it
    navigator.locks?.request(this.name, () => new Promise(() => {})).catch(() => {});
    addEventListener("pagehide", () => this.#leave());
  }

  /** A chat's page that is new to its tab may show what a crash has left. */
  #isFree({ isLeft, name }) {
    if (isLeft || navigator.locks) return isLeft;
    return name === this.#before || !(this.#isNew || this.#before);
  }

  /** Whether what was found is not the draft of a tab that may be open. */
  get #isMine() {
    return this.#found?.isLeft || this.#found?.name === this.#before;
  }

  #begin() {
    this.#files = this.files;
    this.store(this.read(), this.choices, Boolean(this.choices));
  }

  read() {
    return this.#found?.text ?? "";
  }

  get choices() {
    return this.#found?.choices;
  }

  /** A file belongs to one message: of another tab's draft only the text is copied. */
  get files() {
    return (this.#isMine && this.#found?.files) || [];
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
    this.#found = lost && { ...lost, isLeft: true }; // by its crash
    if (!lost) return "";
    this.storeFiles(this.files); // some draft always names the files that are stored
    local.remove(lost.name);
    return lost.text;
  }

  #stored() {
    return draftsOf(this.#base, this.#isNew ? LIFE : Infinity);
  }

  /** A tab that had a draft of a new chat goes on with that one alone. */
  #choose(drafts) {
    const own = drafts.find(({ name }) => name === this.#before);
    return own ?? (this.#isNew && this.#before ? undefined : newest(drafts.filter(hasContent)));
  }

  store(text, choices = this.#choices, isUnusual = false) {
    this.#text = text;
    this.#choices = this.#isNew ? choices : undefined;
    this.#isUnusual = this.#isNew && isUnusual;
    this.#write();
  }

  /** False if the browser stores no draft. */
  storeFiles(files) {
    this.#files = files;
    return this.#write();
  }

  #write(isLeft = false) {
    if (isForgotten) return false;
    const [text, files] = [this.#text, this.#files];
    const draft = { text, files, choices: this.#choices, at: Date.now(), isLeft };
    const isEmpty = !hasContent(draft) && !this.#isUnusual;
    if (!isEmpty) session.set(this.#base, this.name);
    return local.set(this.name, isEmpty ? "" : JSON.stringify(draft));
  }

  /** Not where a sign-out has deleted it meanwhile. */
  #leave() {
    if (local.get(this.name)) this.#write(true);
  }
}

/** Names of the files of new chats' drafts, of all users: one may never come back. */
export function namedFiles() {
  const bases = local.names.map((name) => /^parley:draft:[^:]+:new/.exec(name)?.[0]);
  const drafts = bases.flatMap((base) => (base ? draftsOf(base, LIFE) : []));
  return new Set(drafts.flatMap(({ files }) => files ?? []).map(({ stored }) => stored));
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
    const { text, files, at, isLeft, choices } = JSON.parse(stored);
    return { text: String(text), files, at: Number(at), isLeft: Boolean(isLeft), choices };
  } catch {
    return null;
  }
}

const hasContent = ({ text, files }) => Boolean(text || files?.length);

const newest = (drafts) => drafts.sort((a, b) => b.at - a.at)[0];
