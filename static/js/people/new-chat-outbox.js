// A new chat's first message is sent once, also if the connection or the page is lost.
//
// The form's message is kept with its idempotency key until its arrival is known. Any
// page of a chat that finds one kept sends it again with the same key: the server then
// answers with the turn that it has, if the first request did arrive.

import { $, isSignIn, leave, newKey, notice } from "../dom.js";
import { hasArrived } from "./arrival.js";
import { Waiting } from "./waiting.js";

const NEW_CHAT = "/";
const SENDING = "parley:sending"; // the key that this tab is sending
const OTHERS_AFTER = 60_000; // milliseconds after which another tab may send it
const RETRY = 5000; // milliseconds

export class NewChatOutbox {
  #form = $("#composer");
  #waiting;
  #words;
  #isNew;
  #isSending = false;

  /** `isNew`: this is a new chat's page. Others send what was kept without leaving. */
  constructor(user, words, isNew) {
    this.#waiting = new Waiting(user, "new");
    this.#words = words;
    this.#isNew = isNew;
  }

  start() {
    const mine = sessionStorage.getItem(SENDING);
    sessionStorage.removeItem(SENDING);
    const isRefused = $("#composer-errors .is-error") !== null;
    if (mine && (hasArrived(mine) || isRefused)) this.#waiting.remove(mine);
    // Before the composer's own listener, which clears the text.
    document.addEventListener("submit", (event) => this.#keep(event), {
      capture: true,
    });
    addEventListener("online", () => this.#flush());
    if (!isRefused) this.#flush(mine);
  }

  #keep(event) {
    if (!this.#isNew || event.target !== this.#form) return;
    if (event.submitter?.hasAttribute("formaction")) return;
    const body = new FormData(this.#form, event.submitter);
    const text = body.get("text") || body.get("suggestion") || "";
    if (!text.trim() || $("#attached li")) return; // files cannot be kept
    const message = {
      key: body.get("key") || newKey(),
      text,
      fields: [...body].filter(([name, value]) => isKept(name, value)),
      at: Date.now(),
      sending: navigator.onLine ? Date.now() : 0, // when a tab began to send it
    };
    const isStored = this.#waiting.add(message);
    if (navigator.onLine || !isStored) {
      sessionStorage.setItem(SENDING, message.key);
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
    $("[name=key]", this.#form).value = newKey(); // of the next message
    $("#text").value = "";
    $("#text").dispatchEvent(new Event("input", { bubbles: true }));
    this.#say(this.#words.kept);
  }

  /** Sends the first message that no other tab is sending; `mine` was this tab's. */
  #flush(mine) {
    if (!navigator.onLine || this.#isSending) return;
    const isDue = (message) => message.key === mine || !isUnderWay(message);
    const due = this.#waiting.messages.find(isDue);
    if (due) this.#send(due);
  }

  async #send(message) {
    this.#isSending = true;
    this.#waiting.add({ ...message, sending: Date.now() });
    if (this.#isNew) this.#say(this.#words.sending);
    try {
      await this.#post(message);
    } catch {
      setTimeout(() => this.#send(message), RETRY);
      return;
    }
    this.#isSending = false;
    if (!this.#isNew) this.#flush();
  }

  async #post({ key, text, fields = [] }) {
    const body = new FormData();
    const token = $("[name=csrfmiddlewaretoken]", this.#form).value;
    const own = [["csrfmiddlewaretoken", token], ["key", key]];
    for (const [name, value] of [...own, ...fields]) body.append(name, value);
    if (!body.has("text")) body.set("text", text);
    const response = await fetch(NEW_CHAT, { method: "POST", body });
    // Signed out, or in as another user: the message stays stored for its author.
    if (isSignIn(response)) return leave();
    if (response.status === 403) return this.#isNew && this.#say(this.#words.refused);
    const isOfChat = response.redirected && new URL(response.url).pathname.startsWith("/chat/");
    if (isOfChat) {
      this.#waiting.remove(key);
      if (this.#isNew) location.assign(response.url);
      return;
    }
    if (response.status === 429 || response.status >= 500) throw new Error("later");
    if (!this.#isNew) return; // a new chat's page gives the text back
    this.#waiting.remove(key);
    await this.#giveBack(text, response);
  }

  /** The server refused it: the text goes back into the box, with the reason. */
  async #giveBack(text, response) {
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const why = page.querySelector("#composer-errors .is-error")?.textContent.trim();
    const box = $("#text");
    box.value = [text, box.value].filter(Boolean).join("\n\n");
    box.dispatchEvent(new Event("input", { bubbles: true }));
    $("#composer-errors").replaceChildren(notice(why || this.#words.refused));
  }

  #say(words) {
    $("#composer-errors").replaceChildren(notice(words, "is-waiting"));
  }
}

/** Whether a tab is sending it, or has begun to a short time ago. */
const isUnderWay = ({ sending }) => Date.now() - (sending ?? 0) < OTHERS_AFTER;

/** Options such as model, tools and "temporary" go with the text; the rest is new. */
function isKept(name, value) {
  return typeof value === "string" && !["csrfmiddlewaretoken", "key"].includes(name);
}
