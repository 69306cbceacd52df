// Texts that are not sent yet, by their author and conversation.
//
// Each tab with a new chat has a draft of its own, which the tab finds again after a
// reload. One that a tab has left without sending is found by the next new tab.

import { newKey } from "./dom.js";
import { local, session } from "./stored.js";

const TAB = "parley:tab"; // the id of this tab
const LIFE = 30 * 24 * 3600_000; // milliseconds of a new chat's draft

/** `{name, read(), store(text)}`; `name` is that of what the browser stores. */
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

  store(text) {
    local.set(this.name, text);
  }
}

class NewDraft {
  #found;

  constructor(base) {
    const others = draftsOf(base);
    const before = session.get(TAB);
    const mine = others.find(({ name }) => name === `${base}:${before}`);
    this.#found = before ? mine : newest(others.filter(({ isLeft }) => isLeft));
    const isOther = mine && !mine.isLeft; // a copy of this tab may show it now
    const tab = before && !isOther ? before : newKey();
    session.set(TAB, tab);
    this.name = `${base}:${tab}`;
    if (this.#found && !isOther) local.remove(this.#found.name);
    this.store(this.read());
    addEventListener("pagehide", () => this.#leave());
  }

  read() {
    return this.#found?.text ?? "";
  }

  store(text, isLeft = false) {
    local.set(this.name, text && JSON.stringify({ text, at: Date.now(), isLeft }));
  }

  #leave() {
    const { text } = parsed(local.get(this.name)) ?? {};
    if (text) this.store(text, true);
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
    if (draft && Date.now() - draft.at < LIFE) found.push({ ...draft, name });
    else local.remove(name);
  }
  return found;
}

function parsed(stored) {
  try {
    const { text, at, isLeft } = JSON.parse(stored);
    return { text: String(text), at: Number(at), isLeft: Boolean(isLeft) };
  } catch {
    return null;
  }
}

const newest = (drafts) => drafts.sort((a, b) => b.at - a.at)[0];
