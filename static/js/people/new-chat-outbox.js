// A new chat's first message is sent once, also if the page is lost: it is stored with its
// idempotency key until its arrival is known, and sent again by any page of a chat.

import { $, element, isSignIn, leave, newKey, notice, prepend } from "../dom.js";
import { restOf } from "../polling/rounds.js";
import { sizeOf } from "../sending.js";
import { session } from "../stored.js";
import { hasArrived } from "./arrival.js";
import { Waiting, isTooOld } from "./waiting.js";

const NEW_CHAT = "/";
const SENDING = "parley:sending"; // the key that this tab is sending
const OTHERS_AFTER = 60_000; // milliseconds after which another tab may send it
const FIRST_PAUSE = 5000; // milliseconds after a request that failed
const LONGEST_PAUSE = 60_000;
const LONGEST_REST = 3600; // seconds, if the server wants it

export class NewChatOutbox {
  #form = $("#composer");
  #waiting;
  #words;
  #isNew;
  #keyDays;
  #lock;
  #notice;
  #timer = 0;
  #isSending = false;

  /** `isNew`: of a new chat's page; others stay. The server knows a key for `keyDays`. */
  constructor(user, words, { isNew, keyDays }) {
    this.#waiting = new Waiting(user, "new");
    this.#words = words;
    this.#isNew = isNew;
    this.#keyDays = keyDays;
    this.#lock = `parley:outbox:${user}`;
  }

  start() {
    const mine = session.get(SENDING);
    session.remove(SENDING);
    const isRefused = $("#composer-errors .is-error") !== null;
    if (mine && (hasArrived(mine) || isRefused)) this.#waiting.remove(mine);
    // Before the composer's own listener, which clears the text.
    document.addEventListener("submit", (event) => this.#keep(event), {
      capture: true,
    });
    addEventListener("online", () => this.#flush());
    if (isRefused) return;
    for (const message of this.#waiting.messages) this.#release(message, mine);
    this.#flush();
  }

  /** Makes due what this tab was sending, and what another page was refused. */
  #release(message, mine) {
    if (message.key === mine) this.#waiting.add({ ...message, dueAt: 0 });
    else if (this.#isNew && message.isRefused) {
      this.#waiting.add({ ...message, isRefused: false, dueAt: 0 });
    }
  }

  #keep(event) {
    if (!this.#isNew || event.target !== this.#form) return;
    if (event.submitter?.hasAttribute("formaction")) return;
    const body = new FormData(this.#form, event.submitter);
    const suggestion = body.get("suggestion");
    const text = suggestion || body.get("text") || "";
    if (!text.trim() || $("#attached li")) return; // no files
    const limit = Number(this.#form.dataset.maxText) || Infinity;
    if (sizeOf(text) > limit) return; // the composer refuses it
    const field = $("[name=key]", this.#form);
    const isOther = (each) => each.key === field.value && each.text !== text;
    if (this.#waiting.messages.some(isOther)) field.value = newKey();
    const message = {
      key: field.value || newKey(),
      text,
      fields: [...body].filter(([name, value]) => isKept(name, value)),
      at: Date.now(),
      dueAt: navigator.onLine ? Date.now() + OTHERS_AFTER : 0, // when others may send it
    };
    const isStored = this.#waiting.add(message);
    if (navigator.onLine || !isStored) {
      session.set(SENDING, message.key);
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
    field.value = newKey(); // of the next message
    if (!suggestion) $("#text").value = "";
    $("#text").dispatchEvent(new Event("input", { bubbles: true }));
    this.#say(this.#words.kept);
  }

  async #flush() {
    if (!navigator.onLine || this.#isSending) return;
    clearTimeout(this.#timer);
    this.#isSending = true;
    try {
      await alone(this.#lock, () => this.#sendDue());
    } catch (error) {
      reportError(error); // the next round tries again
    } finally {
      this.#isSending = false;
    }
    this.#report();
  }

  async #sendDue() {
    this.#endOld();
    for (const { key } of this.#waiting.messages) {
      const message = this.#waiting.messages.find((each) => each.key === key);
      if (message && isDue(message) && !(await this.#send(message))) return;
    }
  }

  /** Whether this page may go on with the next message. */
  async #send(message) {
    this.#waiting.add({ ...message, dueAt: Date.now() + OTHERS_AFTER });
    if (this.#isNew) this.#say(this.#words.sending);
    const response = await this.#post(message).catch(() => null);
    if (isForLater(response)) {
      this.#pause(message, response);
      return true;
    }
    // Signed out, or in as another user
    if (isSignIn(response)) {
      this.#waiting.add({ ...message, dueAt: 0 });
      leave();
      return false;
    }
    if (isOfChat(response)) {
      this.#waiting.remove(message.key);
      if (this.#isNew) location.assign(response.url);
      return !this.#isNew;
    }
    if (!this.#isNew) {
      this.#waiting.add({ ...message, isRefused: true });
      return true;
    }
    this.#giveBack(message.text, await this.#reasonIn(response));
    this.#waiting.remove(message.key);
    return false;
  }

  /** It ends: other tabs wait for the lock. */
  async #post({ key, text, fields = [] }) {
    const body = new FormData();
    const token = $("[name=csrfmiddlewaretoken]", this.#form).value;
    const own = [["csrfmiddlewaretoken", token], ["key", key]];
    for (const [name, value] of [...own, ...fields]) body.append(name, value);
    if (!body.has("text")) body.set("text", text);
    return fetch(NEW_CHAT, { method: "POST", body, signal: AbortSignal.timeout(OTHERS_AFTER) });
  }

  /** Longer after each failure in any tab. */
  #pause(message, response) {
    const { failures = 0 } = message;
    const rest = Math.min(response ? restOf(response) : 0, LONGEST_REST) * 1000;
    const pause = Math.max(rest, Math.min(FIRST_PAUSE * 2 ** failures, LONGEST_PAUSE));
    this.#waiting.add({ ...message, failures: failures + 1, dueAt: Date.now() + pause });
  }

  /** And plans the next round. */
  #report() {
    const refused = this.#waiting.messages.filter(({ isRefused }) => isRefused);
    const paused = this.#waiting.messages.filter(isToBeRetried);
    if (refused.length) this.#sayRefused();
    else if (paused.length) this.#say(this.#words.sending);
    else this.#notice?.remove();
    if (!paused.length) return;
    const next = Math.min(...paused.map(({ dueAt }) => dueAt));
    this.#timer = setTimeout(() => this.#flush(), next - Date.now());
  }

  /** The texts go back into a new chat's box. */
  #endOld() {
    const due = this.#waiting.messages.filter(isDue);
    const old = due.filter((message) => isTooOld(message, this.#keyDays));
    if (!this.#isNew) {
      for (const message of old) this.#waiting.add({ ...message, isRefused: true });
      return;
    }
    if (!old.length) return;
    this.#giveBack(old.map(({ text }) => text).join("\n\n"), this.#words.old);
    for (const { key } of old) this.#waiting.remove(key);
  }

  async #reasonIn(response) {
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    return page.querySelector("#composer-errors .is-error")?.textContent.trim();
  }

  #giveBack(text, why) {
    prepend($("#text"), text);
    $("#composer-errors").replaceChildren(notice(why || this.#words.refused));
  }

  #sayRefused() {
    const link = element("a", { href: NEW_CHAT, textContent: this.#words.newChat });
    this.#say(this.#words.refused, ...(this.#isNew ? [] : [link]));
  }

  #say(words, ...links) {
    const made = notice(words, "is-waiting");
    made.append(...links);
    const isShown = this.#notice?.isConnected && this.#notice.textContent === made.textContent;
    if (isShown) return; // screen readers would read it again
    this.#notice?.remove();
    this.#notice = made;
    $("#composer-errors").append(made);
  }
}

/** Browsers have locks on https only. */
function alone(name, act) {
  return navigator.locks ? navigator.locks.request(name, act) : act();
}

const isDue = ({ isRefused, dueAt = 0 }) => !isRefused && dueAt <= Date.now();

const isToBeRetried = ({ isRefused, failures }) => !isRefused && failures > 0;

/** Without an answer, or with one that says nothing of it. */
const isForLater = (response) => !response || response.status === 429 || response.status >= 500;

const isOfChat = ({ redirected, url }) =>
  redirected && new URL(url).pathname.startsWith("/chat/");

function isKept(name, value) {
  return typeof value === "string" && !["csrfmiddlewaretoken", "key"].includes(name);
}
