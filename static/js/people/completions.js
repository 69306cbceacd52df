// A listbox above the message box, chosen from while typing. The box keeps the focus.

import { cloned, element } from "../dom.js";

const MAX_SHOWN = 30;

/**
 * `find(text, caret)` returns the options for what stands before the caret, or null:
 * `{ label, options: [{ name, about, choose }] }`. It may be asynchronous.
 */
export function complete(box, find) {
  const menu = new Menu(box);
  let asked = 0;
  const update = async () => {
    const mine = (asked += 1);
    const found = await find(box.value, box.selectionStart);
    if (mine !== asked) return; // more was typed meanwhile
    if (found?.options.length) menu.show(found);
    else menu.close();
  };
  box.addEventListener("input", (event) => event.isComposing || update());
  box.addEventListener("compositionend", update);
  box.addEventListener("blur", () => {
    asked += 1; // what is found later has no box any more
    menu.close();
  });
  // Before the listeners of the box, which would send the message.
  document.addEventListener("keydown", (event) => menu.key(event), { capture: true });
}

class Menu {
  #box;
  #list = null;
  #options = [];
  #index = 0;

  constructor(box) {
    this.#box = box;
  }

  show({ label, options }) {
    this.#options = options.slice(0, MAX_SHOWN);
    if (!this.#list) {
      this.#list = cloned("completions");
      this.#box.form.append(this.#list);
      this.#box.setAttribute("aria-controls", this.#list.id);
      this.#box.setAttribute("aria-expanded", "true");
      this.#box.setAttribute("role", "combobox");
      this.#box.setAttribute("aria-autocomplete", "list");
    }
    this.#list.setAttribute("aria-label", this.#list.dataset[label]);
    this.#list.replaceChildren(...this.#options.map((each, n) => this.#row(each, n)));
    this.#select(0);
  }

  close() {
    if (!this.#list) return; // another menu may have the box
    this.#list.remove();
    this.#list = null;
    for (const name of ["controls", "expanded", "autocomplete", "activedescendant"]) {
      this.#box.removeAttribute(`aria-${name}`);
    }
    this.#box.removeAttribute("role");
  }

  key(event) {
    if (!this.#list || event.target !== this.#box) return;
    if (event.isComposing || event.keyCode === 229) return;
    const act = {
      ArrowDown: () => this.#select(this.#index + 1),
      ArrowUp: () => this.#select(this.#index - 1),
      Enter: () => this.#choose(),
      Tab: () => this.#choose(),
      Escape: () => this.close(),
    }[event.key];
    if (!act || event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    act();
  }

  #row(option, number) {
    const row = element(
      "li",
      { id: `completion-${number}`, role: "option" },
      element("span", { textContent: option.name, dir: "auto" }),
      element("small", { textContent: option.about ?? "", dir: "auto" }),
    );
    // Not on click: the box would lose its focus first.
    row.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      event.preventDefault();
      this.#index = number;
    });
    row.addEventListener("click", () => this.#choose());
    return row;
  }

  #select(index) {
    const count = this.#options.length;
    this.#index = (index + count) % count;
    for (const [number, row] of [...this.#list.children].entries()) {
      row.setAttribute("aria-selected", String(number === this.#index));
    }
    const chosen = this.#list.children[this.#index];
    this.#box.setAttribute("aria-activedescendant", chosen.id);
    chosen.scrollIntoView({ block: "nearest" });
  }

  #choose() {
    const { choose } = this.#options[this.#index];
    this.close();
    choose();
  }
}

/** Options whose name or description has what was typed, names that begin with it first. */
export function matching(options, typed) {
  const sought = typed.toLocaleLowerCase();
  const rank = ({ name, about }) => {
    const words = name.toLocaleLowerCase();
    if (words.startsWith(sought)) return 0;
    if (words.includes(sought)) return 1;
    return (about ?? "").toLocaleLowerCase().includes(sought) ? 2 : 3;
  };
  const ranked = options.map((option) => [rank(option), option]);
  const found = ranked.filter(([place]) => place < 3);
  return found.sort(([a], [b]) => a - b).map(([, option]) => option);
}

/** Replaces a part of the box's text as if it were typed, so that the draft has it. */
export function replaceText(box, start, end, text) {
  box.setRangeText(text, start, end, "end");
  box.dispatchEvent(new Event("input", { bubbles: true }));
}
