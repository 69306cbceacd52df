// Where an address in a text without marks of Markdown ends: before its sentence does.
//
// As in conversations/pages/reading/addresses.py; tests/js/address_cases.json tests both.

const MOST_TRIMMED = 10; // characters behind an address
const END_OF_SENTENCE = new Set(".,;:!?'\"…。，；：！？、");
/** Marks that are written without blanks around them. */
const WIDE = /[。，；！？、「」『』《》〈〉【】〔〕“”]/;

/** The length of the address with which the text begins. */
export function addressLength(text) {
  const mark = text.search(WIDE);
  const most = unopened(mark === -1 ? text : text.slice(0, mark));
  let end = most;
  const isOver = () => END_OF_SENTENCE.has(text[end - 1]) || isUnopened(text.slice(0, end));
  while (end > most - MOST_TRIMMED && isOver()) end -= 1;
  return end;
}

/** Up to where no wide parenthesis is closed that was not opened. */
function unopened(text) {
  let open = 0;
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "（") open += 1;
    if (text[at] === "）") open -= 1;
    if (open < 0) return at;
  }
  return text.length;
}

const isUnopened = (address) =>
  address.endsWith(")") && address.split(")").length > address.split("(").length;
