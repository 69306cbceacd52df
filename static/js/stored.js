// What the browser stores for its next page. Storage can be denied, or full: then nothing
// is stored, and the page works without it.

class Stored {
  #area;

  /** `area()` is `localStorage` or `sessionStorage`: a browser that denies it throws. */
  constructor(area) {
    this.#area = area;
  }

  /** Null where nothing is stored. */
  get(name) {
    return this.#try((area) => area.getItem(name), null);
  }

  /** Stores the text, or nothing for an empty one. False if that was not possible. */
  set(name, text) {
    return this.#try((area) => {
      if (text) area.setItem(name, text);
      else area.removeItem(name);
      return true;
    }, false);
  }

  remove(name) {
    this.set(name, "");
  }

  get names() {
    return this.#try((area) => Object.keys(area), []);
  }

  #try(act, otherwise) {
    try {
      return act(this.#area());
    } catch {
      return otherwise;
    }
  }
}

export const local = new Stored(() => localStorage);
export const session = new Stored(() => sessionStorage);
