// What needs no page of the modules that help to read answers.
import assert from "node:assert/strict";
import test from "node:test";

globalThis.document = { querySelector: () => null };
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
globalThis.addEventListener = () => {};
const { endingOf } = await import("../../static/js/reading/code-tools.js");
const { quoted } = await import("../../static/js/reading/tables.js");
const { placesOf, wordsOf } = await import("../../static/js/reading/found.js");
const { languageOf } = await import("../../static/js/reading/language.js");
const { sentences } = await import("../../static/js/reading/speech.js");

test("a file ends as its language's files do, and never in what a model made up", () => {
  assert.equal(endingOf("python"), "py");
  assert.equal(endingOf("c++"), "cpp");
  assert.equal(endingOf("html"), "html");
  for (const odd of ["", "../../x", "constructor/", "a b", "x".repeat(40)]) {
    assert.equal(endingOf(odd), "txt");
  }
  assert.match(endingOf("constructor"), /^(constructor|txt)$/);
});

test("cells of CSV are quoted, and none is a formula", () => {
  assert.equal(quoted("plain"), "plain");
  assert.equal(quoted('a "b", c'), '"a ""b"", c"');
  assert.equal(quoted("two\nlines"), '"two\nlines"');
  assert.equal(quoted("=1+2"), "'=1+2");
  assert.equal(quoted("@SUM(A1)"), "'@SUM(A1)");
  assert.equal(quoted("-3,50"), '"-3,50"');
  assert.equal(quoted("-12 %"), "-12 %");
  assert.equal(quoted("-1-cmd"), "'-1-cmd");
});

const { rowsOf } = await import("../../static/js/reading/csv.js");

test("CSV is read as spreadsheets write it", () => {
  assert.deepEqual(rowsOf('a,b\r\n"x, ""y""\nz",2\r\n', 9), [["a", "b"], ['x, "y"\nz', "2"]]);
  assert.deepEqual(rowsOf("a;b\n1;2", 9), [["a", "b"], ["1", "2"]]);
  assert.deepEqual(rowsOf("a\tb\n\t", 9), [["a", "b"], ["", ""]]);
  assert.deepEqual(rowsOf("", 9), []);
  assert.deepEqual(rowsOf('"open\nfor ever', 9), [["open\nfor ever"]]);
  assert.deepEqual(rowsOf("a\nb\nc", 2), [["a"], ["b"]]);
});

test("what is read aloud is cut at sentences, and nothing is lost", () => {
  const text = "One sentence of some words. ".repeat(40) + "x".repeat(700) + " end";
  const pieces = sentences(text);
  assert.ok(pieces.every((piece) => piece.length <= 221 && piece));
  const joined = pieces.join("").replaceAll(" ", "");
  assert.equal(joined, text.replaceAll(" ", ""));
  assert.ok(pieces[0].endsWith("."));
  assert.deepEqual(sentences("  "), []);
});

test("lines are read aloud one by one, as those of a list", () => {
  assert.deepEqual(sentences("Three:\n- one\n\n- two  words\n"), ["Three:", "- one", "- two words"]);
});

test("an answer is read aloud in its own language, or in the page's where it has none", () => {
  const texts = {
    de: "Das Rad ist nicht teuer, und es fährt sich gut mit der Tasche.",
    fr: "Le vélo est dans la cave, et il est pour les enfants.",
    es: "El tren no es caro y es más cómodo para los niños.",
    it: "Il treno non è caro, e con la bici si va di più.",
    pt: "O trem não é caro e é mais confortável para as crianças.",
    nl: "De fiets is niet duur en het is een van de beste.",
    en: "The bike is not expensive, and it is good for the way to work.",
    zh: "自行车不贵，骑起来很舒服。Python 3",
    ja: "自転車は高くないです。乗り心地も良いです。",
    ko: "자전거는 비싸지 않습니다.",
    ru: "Велосипед не дорогой.",
    ar: "الدراجة ليست غالية.",
    he: "האופניים לא יקרים.",
    el: "Το ποδήλατο δεν είναι ακριβό.",
    hi: "साइकिल महंगी नहीं है।",
    th: "จักรยานไม่แพง",
  };
  for (const [language, text] of Object.entries(texts)) {
    for (const usual of ["en", "de", "zh-hans"]) {
      const expected = usual.startsWith(language) ? usual : language;
      assert.equal(languageOf(text, usual), expected, `${language} on a page in ${usual}`);
    }
  }
  for (const text of ["", "42", "OK!", "Paris, Lyon, Nice", "x = f(y)", "🙂🙂🙂"]) {
    assert.equal(languageOf(text, "fr"), "fr", text);
  }
  assert.equal(languageOf("In English, “der, die, das” are “the”.", "en"), "en");
  assert.equal(languageOf("Der Satz „The cat is on the mat“ ist nicht lang.", "de-AT"), "de-AT");
});

test("found words are marked as the server has found them", () => {
  const marked = (text, query) =>
    placesOf(text, wordsOf(query)).map(([start, end]) => text.slice(start, end));
  assert.deepEqual(marked("Un Café, deux cafés", "cafe"), ["Café", "cafés"]);
  assert.deepEqual(marked("Un cafe\u0301 noir", "CAFÉ"), ["cafe\u0301"]);
  assert.deepEqual(marked("a test of a contest", "test"), ["test"]);
  assert.deepEqual(marked("हिन्दी में लिखो", "हिन्दी"), ["हिन्दी"]);
  assert.deepEqual(marked("今天天气很好", "天气"), ["天气"]);
  assert.deepEqual(marked("한국어를 배운다", "한국어"), ["한국어를"]);
  assert.deepEqual(marked("nothing (here)", "[.*"), []);
});
