// The list of models: search, what is known of each, and favourites. It opens over the
// message box in place of the browser's own list, which works without JavaScript.

import { $, announce, cloned, element, icon, slot } from "../dom.js";
import { matching } from "./completions.js";
import { gettext, interpolate } from "../texts.js";

export function offerModels() {
  const opener = $("#choose-model");
  if (opener) new ModelPicker(opener, $("#model"));
}

/** What is known of a model, and in `about` the words that the search reads. */
function described({ about: facts = "", description = "", abilities: stated = "[]" }) {
  const abilities = JSON.parse(stated);
  const words = abilities.map(([, word]) => word);
  return { facts, description, abilities, about: [description, facts, ...words].join(" ") };
}

function chips(abilities) {
  const each = ([name, words]) =>
    element("span", {}, icon(name), element("span", { textContent: words }));
  return element("small", { className: "model-abilities" }, ...abilities.map(each));
}

class ModelPicker {
  #opener;
  #select;
  #favourites; // as shown
  #known; // favourites that the server has
  #changes = 0;
  #form = null;
  #stored = Promise.resolve();

  constructor(opener, select) {
    this.#opener = opener;
    this.#select = select;
    this.#favourites = this.#known = JSON.parse(opener.dataset.favourites);
    opener.hidden = false;
    opener.addEventListener("click", () => this.#open());
    // The button covers the browser's list and says what is chosen there.
    select.tabIndex = -1;
    select.setAttribute("aria-hidden", "true");
    select.addEventListener("change", () => this.#name());
    $("#presets")?.addEventListener("change", () => setTimeout(() => this.#name()));
    this.#name();
  }

  #name() {
    const model = this.#select.selectedOptions[0]?.textContent.trim() ?? "";
    const words = interpolate(gettext("Model: %(model)s"), { model });
    this.#opener.setAttribute("aria-label", words);
    this.#opener.title = words;
  }

  #open() {
    const dialog = $("#dialog");
    this.#form = cloned("models");
    const search = slot(this.#form, "search");
    search.addEventListener("input", () => this.#show());
    search.addEventListener("keydown", (event) => this.#searchKey(event));
    this.#list.addEventListener("keydown", (event) => this.#listKey(event));
    dialog.replaceChildren(this.#form);
    dialog.setAttribute("aria-label", $("h1", this.#form).textContent);
    dialog.addEventListener("close", () => this.#opener.focus(), { once: true });
    this.#show();
    dialog.showModal();
    const isTouched = matchMedia("(pointer: coarse)").matches;
    (isTouched ? $("[aria-current]", this.#list) ?? search : search).focus();
    $("[aria-current]", this.#list)?.scrollIntoView({ block: "nearest" });
  }

  get #list() {
    return slot(this.#form, "models");
  }

  /** Favourites first; those that match what is typed, the best first. */
  #show() {
    const typed = slot(this.#form, "search").value.trim();
    const offered = [...this.#select.options].filter(({ disabled }) => !disabled);
    const options = offered.map((option) => ({
      name: option.textContent.trim(),
      ...described(option.dataset),
      value: option.value,
    }));
    const place = ({ value }) => Number(!this.#favourites.includes(value));
    const sorted = options.sort((a, b) => place(a) - place(b));
    const found = typed ? matching(sorted, typed) : sorted;
    this.#list.replaceChildren(...found.map((option) => this.#row(option)));
    slot(this.#form, "none").hidden = found.length > 0;
  }

  #row({ name, description, facts, abilities, value }) {
    const row = cloned("model");
    const choice = slot(row, "choice");
    const line = (textContent) => element("small", { textContent, dir: "auto" });
    choice.append(element("strong", { textContent: name, dir: "auto" }));
    if (description) choice.append(line(description));
    if (facts) choice.append(line(facts));
    if (abilities.length) choice.append(chips(abilities));
    if (value === this.#select.value) choice.setAttribute("aria-current", "true");
    choice.addEventListener("click", () => this.#choose(value, name));
    const star = slot(row, "star");
    star.hidden = !value; // the usual model is no model of its own
    star.value = value;
    star.setAttribute("aria-label", interpolate(gettext("Favourite: %(model)s"), { model: name }));
    this.#mark(star);
    star.addEventListener("click", () => this.#toggle(value));
    return row;
  }

  #mark(star) {
    star.setAttribute("aria-pressed", String(this.#favourites.includes(star.value)));
  }

  #markAll() {
    for (const star of this.#list.querySelectorAll("[data-slot=star]")) this.#mark(star);
  }

  #choose(value, name) {
    this.#select.value = value;
    this.#select.dispatchEvent(new Event("change", { bubbles: true }));
    $("#dialog").close();
    announce(interpolate(gettext("Model: %(model)s"), { model: name }));
  }

  /** Each request sends all favourites, one request after another: so the last one counts,
   *  and one that failed is made good by the next. */
  async #toggle(value) {
    this.#turn(value);
    this.#markAll();
    const number = (this.#changes += 1);
    const favourites = this.#favourites;
    const isStored = this.#stored.then(() => this.#store(favourites));
    this.#stored = isStored;
    if (await isStored) this.#known = favourites;
    else if (number === this.#changes) {
      this.#favourites = this.#known;
      this.#markAll();
      announce(gettext("The favourites could not be saved."));
    }
  }

  /** Makes it a favourite, or none. */
  #turn(value) {
    const others = this.#favourites.filter((each) => each !== value);
    const isNew = others.length === this.#favourites.length;
    this.#favourites = isNew ? [...others, value] : others;
  }

  /** Whether the server has them now. */
  async #store(favourites) {
    const headers = {
      "Content-Type": "application/json",
      "X-CSRFToken": $("#composer [name=csrfmiddlewaretoken]").value,
    };
    const body = JSON.stringify({ favourite_models: favourites });
    const options = { method: "PATCH", headers, body };
    const response = await fetch(this.#opener.dataset.settings, options).catch(() => null);
    return response?.ok ?? false;
  }

  #searchKey(event) {
    if (event.isComposing) return;
    const first = $("[data-slot=choice]", this.#list);
    if (event.key === "Enter") {
      event.preventDefault(); // would submit the dialog's form
      first?.click();
    } else if (event.key === "ArrowDown") {
      event.preventDefault();
      first?.focus();
    }
  }

  #listKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const choices = [...this.#list.querySelectorAll("[data-slot=choice]")];
    const here = choices.indexOf($("[data-slot=choice]", event.target.closest("li")));
    (choices[here + step] ?? slot(this.#form, "search")).focus();
  }
}
