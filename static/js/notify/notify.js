// Signs of a finished answer for a reader who is elsewhere: the tab's title and icon, a
// notification of the browser, and a sound.
//
// The account says which of the first two the reader wants; the sound belongs to this
// browser. What a notification shows is the conversation's title.

import { $ } from "../dom.js";
import { local } from "../stored.js";

const SOUND = `parley:sound:${document.body.dataset.user}`;
const TONES = [660, 880]; // Hz
const LENGTH = 0.12; // seconds of a tone

const wishes = $("#people")?.dataset ?? {}; // of the account
let title = document.title; // without the count
let count = 0;
let tabTitle = title; // as last set here: what covers the page may set another
let unread = null; // keys of the list's rows with a new answer, once they are known

/** `onSeen` is called when the reader comes back to the page. */
export function watchAbsence(onSeen) {
  countElsewhere($("#list"));
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    count = 0;
    show();
    onSeen();
  });
  const button = $("#sound");
  button.addEventListener("click", () => {
    local.set(SOUND, wantsSound() ? "" : "on"); // without storage it stays off
    showSound(button);
    if (wantsSound()) play();
  });
  showSound(button);
}

/** An answer has ended, or waits for the reader: `ready`, `failed` or `waiting`. */
export function notifyOf(what) {
  if (wantsSound() && !document.hasFocus()) play();
  if (!document.hidden) return;
  count += 1;
  show();
  if (wishes.notifyBrowser !== undefined && mayNotify()) notify(what);
}

/** Counts the answers of other conversations that have come since the last look. */
export function countElsewhere(list) {
  const rows = [...list.querySelectorAll(".unread")].map((dot) => dot.closest("[data-key]"));
  const keys = new Set(rows.map(({ dataset }) => dataset.key));
  if (document.hidden && unread) count += [...keys].filter((key) => !unread.has(key)).length;
  unread = keys;
  show();
}

/** The conversation has this title now. */
export function showTitle(words) {
  title = words;
  show();
}

function show() {
  const shown = wishes.notifyTitle === undefined ? 0 : count;
  const words = shown ? `(${shown}) ${title}` : title;
  if (words === tabTitle) return;
  document.title = tabTitle = words;
  const link = $("link[rel=icon]");
  link.dataset.usual ??= link.href;
  link.href = shown ? link.dataset.badge : link.dataset.usual;
}

const mayNotify = () => globalThis.Notification?.permission === "granted";

function notify(what) {
  const words = $("#sound").dataset[what];
  const options = {
    body: $(".bar-title")?.textContent.trim() ?? "",
    tag: location.pathname, // a later one replaces it
    icon: $("link[rel=icon]").dataset.badge,
  };
  try {
    showOfPage(words, options);
  } catch {
    showOfWorker(words, options).catch(() => {}); // the title and the icon tell it, too
  }
}

/** Throws on phones, where only a service worker may show one. */
function showOfPage(title, options) {
  const note = new Notification(title, options);
  note.addEventListener("click", () => {
    window.focus();
    note.close();
  });
}

/** A click on it is people/service-worker.js's. */
async function showOfWorker(title, options) {
  const registration = await navigator.serviceWorker?.ready;
  await registration?.showNotification(title, options);
}

// Sound

const wantsSound = () => local.get(SOUND) !== null;

function showSound(button) {
  button.setAttribute("aria-pressed", String(wantsSound()));
}

function play() {
  try {
    const audio = new AudioContext();
    TONES.forEach((tone, number) => {
      const [wave, volume] = [audio.createOscillator(), audio.createGain()];
      const start = audio.currentTime + number * LENGTH;
      wave.frequency.value = tone;
      volume.gain.setValueAtTime(0.08, start);
      volume.gain.exponentialRampToValueAtTime(0.001, start + LENGTH);
      wave.connect(volume).connect(audio.destination);
      wave.start(start);
      wave.stop(start + LENGTH);
      if (number === TONES.length - 1) wave.onended = () => audio.close();
    });
  } catch {
    // No sound is available.
  }
}
