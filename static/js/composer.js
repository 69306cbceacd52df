// Message box: grows with its text, stores the draft, and sends on Enter.

import { $, newKey, notice, prepend } from "./dom.js";
import { draftOf } from "./drafts.js";
import { Files, inWords } from "./files.js";
import { hasArrived } from "./people/arrival.js";
import { choicesOf, restoreChoices } from "./people/new-chat-choices.js";
import { SENT } from "./people/sign-out.js";
import { sizeOf } from "./sending.js";
import { removeUnnamed } from "./stored-files.js";
import { local, session } from "./stored.js";
import { gettext, interpolate } from "./texts.js";

export class Composer {
  #form = $("#composer");
  #text = $("#text");
  #model = $("#model");
  #draft;
  #files;
  #onRefused;
  #chosen = new Set(); // names of changed fields
  #usual = JSON.stringify(choicesOf(this.#form)); // what the page offers

  /**
   * `onSend(text, takeParts, when)` returns false if the browser shall submit the form;
   * if the server refuses it, `onRefused` is called.
   */
  constructor({ conversation, uploads, onSend, onRefused }) {
    this.#onRefused = onRefused;
    const complain = (why) => this.complain(why);
    const hasSent = forgetArrived();
    const { user } = document.body.dataset;
    this.#draft = draftOf(user, conversation, this.#text.value);
    this.#files = new Files({ conversation, url: uploads, draft: this.#draft, complain });
    if (!this.#text.value) this.#text.value = this.#draft.read();
    this.#restoreChoices();
    this.#findLost();
    if (hasSent || !conversation) removeUnnamed();
    document.addEventListener("change", ({ target }) => {
      if (target.form === this.#form) this.#changed();
    });
    const note = ({ target }) => target.form === this.#form && this.#chosen.add(target.name);
    for (const type of ["change", "input"]) document.addEventListener(type, note);
    this.#text.addEventListener("input", () => {
      this.#files.stopWaiting(); // half a change is not sent
      this.#changed();
    });
    this.#text.addEventListener("keydown", (event) => this.#key(event));
    this.#model?.addEventListener("change", () => this.showDemo());
    this.#form.addEventListener("submit", (event) => this.#submit(event, onSend));
    this.#grow();
    this.#form.dataset.scripted = ""; // ends what static/js/boot.js does
  }

  get model() {
    return this.#model?.value ?? "";
  }

  focus() {
    this.#text.focus({ preventScroll: true });
  }

  /** Takes what is written out of the box, and of the draft. */
  takeText() {
    const text = this.#text.value;
    this.#clear();
    return text;
  }

  chooseModel() {
    $("#choose-model")?.click();
  }

  /** Restores a message before what was typed since. */
  giveBack({ text, parts }, why = "") {
    this.#files.giveBack(parts ?? []);
    prepend(this.#text, text);
    if (why) this.complain(why);
  }

  complain(why) {
    $("#composer-errors").replaceChildren(notice(why));
  }

  #submit(event, onSend) {
    if (event.submitter?.hasAttribute("formaction")) return; // stop, retry
    const { submitter } = event;
    const isSuggestion = submitter?.name === "suggestion";
    const text = isSuggestion ? submitter.value : this.#text.value;
    if (!text.trim() && this.#files.isEmpty) {
      event.preventDefault();
      this.focus();
      return;
    }
    const problem = this.#tooLarge(text) || this.#files.problem;
    if (problem) {
      event.preventDefault();
      this.complain(problem);
      return;
    }
    if (this.#files.isBusy) {
      event.preventDefault();
      this.#files.whenReady(() => this.#form.requestSubmit(submitter));
      return;
    }
    $("#composer-errors").replaceChildren();
    const when = submitter?.name === "when" ? submitter.value : "";
    $("#send-menu").open = false;
    if (onSend(text, () => this.#files.take(), when)) {
      if (when) this.focus(); // the menu with the button has closed
      event.preventDefault();
      if (!isSuggestion) this.#clear();
      return;
    }
    if (!isSuggestion) {
      const { value: key } = this.#form.elements.key;
      this.#draft.storeKey(key);
      session.set(SENT, `${key} ${this.#draft.name}`);
    }
    if (this.#files.isEmpty) return;
    event.preventDefault();
    this.#post(submitter);
  }

  /** Why the server would refuse the text; "" if it would not. */
  #tooLarge(text) {
    const limit = Number(this.#form.dataset.maxText);
    const size = sizeOf(text);
    if (!limit || size <= limit) return "";
    const words = gettext("The message has %(size)s; the limit is %(limit)s.");
    return interpolate(words, inWords({ size, limit }));
  }

  async #post(submitter) {
    const send = $("#send");
    send.disabled = true;
    try {
      location.assign(await this.#files.post(submitter));
    } catch (error) {
      send.disabled = false;
      session.remove(SENT);
      this.#onRefused();
      this.complain(error.message);
    }
  }

  #key(event) {
    // While an input method composes, Enter chooses a word.
    if (event.key !== "Enter" || event.isComposing || event.keyCode === 229) return;
    const isPhone = matchMedia("(pointer: coarse)").matches;
    if (event.shiftKey || (isPhone && !event.ctrlKey && !event.metaKey)) return;
    event.preventDefault();
    this.#form.requestSubmit($("#send"));
  }

  #changed() {
    this.#grow();
    const choices = choicesOf(this.#form);
    const isUnusual = JSON.stringify(choices) !== this.#usual;
    if (!this.#draft.store(this.#text.value, choices, isUnusual)) return;
    this.#form.elements.key.value = newKey();
  }

  #clear() {
    this.#text.value = "";
    this.#changed();
  }

  /** The person may have typed meanwhile. */
  async #findLost() {
    if (this.#text.value || !this.#files.isEmpty) return;
    const text = await this.#draft.readLost();
    this.#files.restore(this.#draft.files);
    const isAlone = !this.#text.value;
    if (text) prepend(this.#text, text);
    if (isAlone) this.#restoreChoices();
  }

  /** And the key of what was sent: the server may have it. */
  #restoreChoices() {
    const { choices, key } = this.#draft;
    if (choices) restoreChoices(this.#form, choices, this.#chosen);
    if (!key || $("#composer-errors .is-error")) return;
    this.#form.elements.key.value = key;
    this.#draft.storeKey(key);
  }

  #grow() {
    if (CSS.supports("field-sizing", "content")) return;
    this.#text.style.height = "auto";
    this.#text.style.height = `${this.#text.scrollHeight}px`;
  }

  showDemo() {
    if (!this.#model) return;
    const isDemo = "demo" in this.#model.selectedOptions[0].dataset;
    $("#demo-note").hidden = !isDemo;
  }
}

/** Deletes the draft of what has arrived; false without one. */
function forgetArrived() {
  const [key, draft] = (session.get(SENT) ?? "").split(" ");
  const isSent = Boolean(draft) && hasArrived(key);
  if (isSent) local.remove(draft);
  session.remove(SENT);
  return isSent;
}
