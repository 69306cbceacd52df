// A new chat's first message is sent once, also if the connection or the page is lost.
//
// The form's message is kept with its idempotency key until the conversation's page is
// shown. A page for a new chat that finds one kept sends it again with the same key: the
// server then answers with the turn that it has, if the first request did arrive.

import { $, newKey, notice } from "../dom.js";
import { Waiting } from "./waiting.js";

const SENDING = "parley:sending"; // the key that this tab is sending
const OTHERS_AFTER = 60_000; // milliseconds after which another tab may send it
const RETRY = 5000; // milliseconds

export class NewChatOutbox {
  #form = $("#composer");
  #waiting;
  #words;
  #timer = 0;

  constructor(user, words) {
    this.#waiting = new Waiting(user, "new");
    this.#words = words;
  }

  /** `isNew`: this is a new chat's page; else the message has arrived. */
  start(isNew) {
    const mine = sessionStorage.getItem(SENDING);
    sessionStorage.removeItem(SENDING);
    const isRefused = $("#composer-errors .is-error") !== null;
    if (mine && (!isNew || isRefused)) this.#waiting.remove(mine);
    if (!isNew) return;
    // Before the composer's own listener, which clears the text.
    document.addEventListener("submit", (event) => this.#keep(event), {
      capture: true,
    });
    addEventListener("online", () => this.#flush());
    const due = this.#waiting.messages.find((message) => {
      return message.key === mine || !(Date.now() - message.at < OTHERS_AFTER);
    });
    if (due && !isRefused) this.#send(due);
    else this.#flush();
  }

  #keep(event) {
    if (event.target !== this.#form) return;
    if (event.submitter?.hasAttribute("formaction")) return;
    const body = new FormData(this.#form, event.submitter);
    const text = body.get("text") || body.get("suggestion") || "";
    if (!text.trim() || $("#attached li")) return; // files cannot be kept
    const message = {
      key: body.get("key") || newKey(),
      text,
      fields: [...body].filter(([name, value]) => isKept(name, value)),
      at: Date.now(),
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

  /** Sends the first message that was kept while offline. */
  #flush() {
    const sending = sessionStorage.getItem(SENDING);
    const found = this.#waiting.messages.find(({ key }) => key !== sending);
    const isFresh = found && Date.now() - found.at < OTHERS_AFTER;
    if (!found || !navigator.onLine || (isFresh && sending)) return;
    this.#send(found);
  }

  async #send(message) {
    clearTimeout(this.#timer);
    this.#say(this.#words.sending);
    try {
      await this.#post(message);
    } catch {
      this.#timer = setTimeout(() => this.#send(message), RETRY);
    }
  }

  async #post({ key, text, fields = [] }) {
    const body = new FormData();
    const token = $("[name=csrfmiddlewaretoken]", this.#form).value;
    const own = [["csrfmiddlewaretoken", token], ["key", key]];
    for (const [name, value] of [...own, ...fields]) body.append(name, value);
    if (!body.has("text")) body.set("text", text);
    const response = await fetch(this.#form.action, { method: "POST", body });
    const { pathname } = new URL(response.url);
    // Signed out, or in as another user: the message stays stored for its author.
    if (pathname === "/login/") return location.reload();
    if (response.status === 403) return this.#say(this.#words.refused);
    if (response.redirected && pathname.startsWith("/chat/")) {
      this.#waiting.remove(key);
      return location.assign(response.url);
    }
    if (response.status === 429 || response.status >= 500) throw new Error("later");
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

/** Options such as model, tools and "temporary" go with the text; the rest is new. */
function isKept(name, value) {
  return typeof value === "string" && !["csrfmiddlewaretoken", "key"].includes(name);
}
