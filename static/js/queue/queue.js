// The messages that wait while a turn runs, as the server renders them above the box.
//
// The list is fetched again whenever it may have changed, on any device. An editor that
// is open keeps its text and its focus; if its message has been sent meanwhile, the text
// goes into the message box.

import { $, announce, cloned, fetched, slot } from "../dom.js";
import { postedInTime } from "../people/posting.js";

const LATER = 50; // milliseconds; several changes at once make one request
const AGAIN = 3000; // milliseconds after a request that failed

export class Queue {
  #timer = 0;
  #requests = 0;
  #posting = Promise.resolve(); // changes reach the server in the order of the clicks
  #url;
  #onShown;
  #giveBack;
  #complain;

  /**
   * `onShown(messages)` gets the waiting messages in order, `{id, text}`.
   * `giveBack(text, why)` gets text that was typed for a message that is gone.
   */
  constructor({ onShown, giveBack, complain }) {
    this.#onShown = onShown;
    this.#giveBack = giveBack;
    this.#complain = complain;
    this.#url = this.#root.dataset.url;
    document.addEventListener("submit", (event) => this.#submit(event));
  }

  /** Begins with the list that the page was sent with. */
  start() {
    this.#tell();
  }

  get #root() {
    return $("#queue");
  }

  /** Shows a message that was sent a moment ago, until the list is fetched. */
  add(text) {
    const pending = cloned("queued");
    slot(pending, "text").textContent = text;
    $(".queue-list", this.#root).append(pending);
    this.#root.hidden = false;
  }

  refresh() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#fetch(), LATER);
  }

  /** Of several requests only the last counts. */
  async #fetch() {
    const number = (this.#requests += 1);
    let fresh;
    try {
      fresh = await fetched(this.#url, "#queue");
    } catch {
      if (number !== this.#requests) return;
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#fetch(), AGAIN);
      return;
    }
    if (number !== this.#requests) return;
    const place = placeOf(this.#root);
    this.#root.replaceWith(fresh);
    this.#restore(place);
    this.#tell();
  }

  #restore(place) {
    if (place.editor) {
      const now = $(`[data-turn="${place.editor.id}"] .queued-edit`, this.#root);
      const area = now && $("textarea", now);
      if (area) {
        now.open = true;
        area.value = place.editor.text;
      } else if (place.editor.isChanged) {
        this.#giveBack(place.editor.text, this.#root.dataset.sent);
        return;
      }
    }
    this.#focus(place);
  }

  #focus({ focused }) {
    if (!focused) return;
    const line = $(`[data-turn="${focused.id}"]`, this.#root);
    const control = line && $(focused.selector, line);
    const target = control && !control.disabled ? control : line && $("summary", line);
    (target ?? $("#text")).focus({ preventScroll: true });
    if (target?.matches("textarea")) target.setSelectionRange(...focused.selection);
  }

  #tell() {
    const lines = [...this.#root.querySelectorAll(".queued[data-turn]")];
    const text = (line) => $("textarea", line)?.defaultValue ?? null;
    this.#onShown(lines.map((line) => ({ id: line.dataset.turn, text: text(line) })));
  }

  async #submit(event) {
    if (!event.target.matches("#queue form")) return;
    event.preventDefault();
    const { target: form, submitter } = event;
    const act = submitter?.value ?? "change"; // Enter in a field has no button
    const body = new FormData(form);
    body.set("act", act);
    const buttons = [...form.querySelectorAll("button:not([disabled])")];
    for (const button of buttons) button.disabled = true;
    const line = form.closest(".queued");
    try {
      const { isSaved, response } = await this.#post(form.action, body);
      if (!isSaved) this.#refused(await response.text(), line);
      else if (act === "change") $(".queued-edit", line).open = false;
      announce(submitter?.getAttribute("aria-label") ?? submitter?.textContent ?? "");
    } catch {
      this.#complain(this.#root.dataset.failed);
      for (const button of buttons) button.disabled = false;
    }
    this.refresh();
  }

  #post(url, body) {
    const answer = this.#posting.then(() => postedInTime(url, body));
    this.#posting = answer.catch(() => {});
    return answer;
  }

  #refused(page, line) {
    const found = new DOMParser().parseFromString(page, "text/html");
    const why = $("[data-problem]", found)?.textContent ?? this.#root.dataset.failed;
    const area = $("textarea", line);
    if (area && area.value !== area.defaultValue) this.#giveBack(area.value, why);
    else this.#complain(why);
    if (area) area.value = area.defaultValue;
  }
}

/** What must survive a replacement: the open editor, and the focused control. */
function placeOf(root) {
  const open = $(".queued-edit[open]", root);
  const area = open && $("textarea", open);
  const editor = area && {
    id: open.closest(".queued").dataset.turn,
    text: area.value,
    isChanged: area.value !== area.defaultValue,
  };
  const at = root.contains(document.activeElement) && document.activeElement;
  const id = at && at.closest(".queued[data-turn]")?.dataset.turn;
  const focused = id && {
    id,
    selector: selectorOf(at),
    selection: [at.selectionStart ?? 0, at.selectionEnd ?? 0],
  };
  return { editor, focused };
}

function selectorOf(control) {
  if (control.matches("textarea")) return "textarea";
  return control.matches("button") ? `button[value="${control.value}"]` : "summary";
}
