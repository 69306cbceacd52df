// Guesses the language of a text that will be read aloud, by its script or its commonest words.

const SAMPLE = 5000; // characters; the beginning of an answer is enough
const FEWEST = 3; // common words; with fewer, a name or a quotation would decide

/** Scripts with the language that most texts in them have. Japanese also has Chinese signs. */
const SCRIPTS = [
  ["ja", /[\p{Script=Hiragana}\p{Script=Katakana}]/gu],
  ["zh", /\p{Script=Han}/gu],
  ["ko", /\p{Script=Hangul}/gu],
  ["ru", /\p{Script=Cyrillic}/gu],
  ["ar", /\p{Script=Arabic}/gu],
  ["he", /\p{Script=Hebrew}/gu],
  ["el", /\p{Script=Greek}/gu],
  ["hi", /\p{Script=Devanagari}/gu],
  ["th", /\p{Script=Thai}/gu],
];

const WORDS = Object.entries({
  en: "the|and|of|to|is|that|it|for|with|you|are|this|be|not|have|from|your|which|will|can",
  de: "der|die|das|und|ist|nicht|ein|eine|mit|für|auf|den|dem|von|zu|sie|auch|sich|es|wie",
  fr: "le|la|les|et|est|des|une|un|pour|dans|que|qui|vous|pas|sur|avec|ce|sont|plus|du",
  es: "el|la|los|las|y|es|una|un|para|que|en|por|con|no|se|del|más|como|su|son",
  it: "il|lo|la|gli|e|è|una|un|per|che|di|con|non|si|del|più|come|sono|della|i",
  pt: "o|a|os|as|e|é|uma|um|para|que|em|por|com|não|se|do|da|mais|como|são",
  nl: "de|het|een|en|is|van|niet|dat|voor|met|op|zijn|die|je|ook|als|maar|aan|er|te",
}).map(([language, words]) => [language, new Set(words.split("|"))]);

/** The language's tag; `usual`, such as "de-AT", if the text shows no other one. */
export function languageOf(text, usual) {
  const sample = text.slice(0, SAMPLE);
  const found = byScript(sample) ?? byWords(sample, usual);
  return !found || isSame(found, usual) ? usual : found;
}

const isSame = (language, tag) => tag.toLowerCase().split("-")[0] === language;

/** Null for texts that are mostly in Latin letters. */
function byScript(text) {
  const letters = text.match(/\p{L}/gu)?.length ?? 0;
  const counts = SCRIPTS.map(([language, signs]) => [language, text.match(signs)?.length ?? 0]);
  const [[, kana], [, han]] = counts;
  // A Japanese sentence has signs of both scripts, and a few kana are a sure sign.
  if (kana * 10 > han && (kana + han) * 2 > letters && kana) return "ja";
  const [language, most] = counts.reduce((a, b) => (b[1] > a[1] ? b : a));
  return most * 2 > letters ? language : null;
}

function byWords(text, usual) {
  const words = text.toLowerCase().match(/\p{L}+/gu) ?? [];
  const counts = WORDS.map(([language, common]) => [
    language,
    words.filter((word) => common.has(word)).length,
  ]);
  const own = counts.find(([language]) => isSame(language, usual))?.[1] ?? 0;
  const [language, most] = counts.reduce((a, b) => (b[1] > a[1] ? b : a));
  return most >= FEWEST && most > own * 1.5 ? language : null;
}
