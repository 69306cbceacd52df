// Entities of HTML in Markdown, such as `&amp;` and `&#228;`, which stand for a character.

const ENTITY = /&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z\d]{1,31});/g;
const AT_END = /&[#A-Za-z\d]{0,32};?$/;
const BEGINNING = /&[#A-Za-z\d]{0,32}$/;

const known = new Map(); // entity -> its character, or itself

/** The entity, or the beginning of one, with which the text ends; "" without. */
export const entityAtEnd = (text) => AT_END.exec(text)?.[0] ?? "";

/** What later text may make an entity; "" if nothing. */
export const beginningOfEntity = (text) => BEGINNING.exec(text)?.[0] ?? "";

export const withoutEntities = (text) => text.replace(ENTITY, characterOf);

/** The browser has the list of names. What it makes of an entity is text, never HTML. */
function characterOf(entity) {
  if (!known.has(entity)) {
    const page = new DOMParser().parseFromString(entity, "text/html");
    known.set(entity, page.body.textContent || entity);
  }
  return known.get(entity);
}
