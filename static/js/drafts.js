// Texts and uploaded files that are not sent yet, by their author and conversation.
//
// Each page has a draft of its own, which its tab finds again after a reload. One that a tab
// has left is found by the next tab with a new chat, or with the same chat, also after a
// crash: an open page has a lock with the name of its draft. Browsers have locks on https
// only; without them a draft unchanged for an hour counts as left, a copy of a tab
// begins with the tab's draft, and a tab that is new to a chat with the last text there.

import { newKey } from "./dom.js";
import { isForgotten } from "./people/waiting.js";
import { local, session } from "./stored.js";

const LIFE = 30 * 24 * 3600_000; // milliseconds of a new chat's draft
const QUIET = 3600_000; // milliseconds without a change

/** `shown` is the text that the page opens with, as of a saved prompt: a draft with another
 *  text stays for a page without one. `readLost()` is a promise of a text that is found
 *  later than the page opens. `choices` (of a new chat), `files` and `key` (with which it
 *  was sent) are those of the text. Unusual choices are stored without one for a reload. */
export function draftOf(user, conversation, shown = "") {
  const prefix = `parley:draft:${user}:`;
  return new Draft(prefix + (conversation || "new"), !conversation, shown);
}

class Draft {
  #base;
  #isNew;
  #before; // names of this tab's drafts, the last one first; a copy of the tab knows them
  #others; // those of them that are drafts of other messages
  #found;
  #text = ""; // as last stored, as are the others
  #choices;
  #isUnusual = false;
  #files = [];
  #key;

  constructor(base, isNew, shown) {
    this.#base = base;
    this.#isNew = isNew;
    this.#before = session.get(base)?.split(" ") ?? [];
    this.name = `${base}:${newKey()}`;
    const drafts = this.#stored().filter((draft) => this.#isFree(draft));
    const found = this.#choose(drafts);
    const isAdopted = !shown || found?.text === shown;
    if (isAdopted) this.#found = found;
    const names = drafts.filter(hasContent).map(({ name }) => name);
    this.#others = this.#before.filter((name) => names.includes(name) && name !== this.#found?.name);
    if (isAdopted) {
      this.#name(); // and so no page finds again:
      for (const draft of drafts) {
        const isOwn = draft.isLeft && this.#before.includes(draft.name);
        if (isOwn && draft !== found && !hasContent(draft)) local.remove(draft.name);
      }
    }
    if (this.#isMine) this.#begin();
    if (this.#found?.isLeft) local.remove(this.#found.name); // else a copy may show it
    navigator.locks?.request(this.name, () => new Promise(() => {})).catch(() => {});
    addEventListener("pagehide", () => this.#leave());
  }

  /** A chat's page that is new to its tab shows what a crash has left. */
  #isFree({ isLeft, name }) {
    if (isLeft || navigator.locks) return isLeft;
    return this.#before.includes(name) || !(this.#isNew || this.#before.length);
  }

  /** Whether what was found is not the draft of a tab that may be open. */
  get #isMine() {
    return this.#found?.isLeft || this.#before.includes(this.#found?.name);
  }

  /** For the tab's next page. */
  #name() {
    session.set(this.#base, [this.name, ...this.#others].join(" "));
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

  /** A file belongs to one message: a copy has the text alone. */
  get files() {
    return (this.#isMine && this.#found?.files) || [];
  }

  get key() {
    return this.#isMine && this.#found.key;
  }

  /** Two restored tabs do not take the same one. */
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

  /** A new chat's tab goes on with its own alone. */
  #choose(drafts) {
    const isReload = performance.getEntriesByType("navigation")[0]?.type !== "navigate";
    const own = this.#before
      .map((before) => drafts.find(({ name }) => name === before))
      .find((draft) => draft && (isReload || hasContent(draft)));
    const isBusy = this.#isNew && this.#before.length;
    return own ?? (isBusy ? undefined : newest(drafts.filter(hasContent)));
  }

  /** Whether it is another text than was sent. */
  store(text, choices = this.#choices, isUnusual = false) {
    const isOther = this.#key && text !== this.#text;
    if (isOther) this.#key = "";
    this.#text = text;
    this.#choices = this.#isNew ? choices : undefined;
    this.#isUnusual = this.#isNew && isUnusual;
    this.#write();
    return isOther;
  }

  /** False without a storage. */
  storeFiles(files) {
    this.#files = files;
    return this.#write();
  }

  /** That of the message that is being sent. */
  storeKey(key) {
    this.#key = key;
    this.#write();
  }

  #write(isLeft = false) {
    if (isForgotten) return false;
    const [text, files, key] = [this.#text, this.#files, this.#key];
    const draft = { text, files, choices: this.#choices, key, at: Date.now(), isLeft };
    const isEmpty = !hasContent(draft) && !this.#isUnusual;
    if (!isEmpty) this.#name();
    return local.set(this.name, isEmpty ? "" : JSON.stringify(draft));
  }

  /** Not where a sign-out has deleted it meanwhile. */
  #leave() {
    if (local.get(this.name)) this.#write(true);
  }
}

/** Files of new chats' drafts, of all users. */
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
    const { text, at, isLeft, ...others } = JSON.parse(stored);
    return { text: String(text), at: Number(at), isLeft: Boolean(isLeft), ...others };
  } catch {
    return null;
  }
}

const hasContent = ({ text, files }) => Boolean(text || files?.length);

const newest = (drafts) => drafts.sort((a, b) => b.at - a.at)[0];
