// Signs of a finished answer for a reader who is elsewhere: the tab's title and icon, a
// notification of the browser, and a sound.
//
// The settings of the account say which of the first two the reader wants; the sound
// belongs to this browser and is off until it is switched on in the menu. What a
// notification shows is the conversation's title.

import { $ } from "../dom.js";

const SOUND = `parley:sound:${document.body.dataset.user}`;
const COUNT = /^\(\d+\) /;
const TONES = [660, 880]; // Hz
const LENGTH = 0.12; // seconds of a tone

const wishes = $("#people")?.dataset ?? {}; // of the account
let count = 0;

/** `onSeen` is called when the reader comes back to the page. */
export function watchAbsence(onSeen) {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    count = 0;
    showCount();
    onSeen();
  });
  const button = $("#sound");
  button.addEventListener("click", () => {
    storeSound(button.getAttribute("aria-pressed") !== "true");
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
  if (wishes.notifyTitle !== undefined) showCount();
  if (wishes.notifyBrowser !== undefined && mayNotify()) show(what);
}

function showCount() {
  const title = document.title.replace(COUNT, "");
  document.title = count ? `(${count}) ${title}` : title;
  const link = $("link[rel=icon]");
  link.dataset.usual ??= link.href;
  link.href = count ? link.dataset.badge : link.dataset.usual;
}

const mayNotify = () => globalThis.Notification?.permission === "granted";

function show(what) {
  const title = $("#sound").dataset[what];
  const options = {
    body: $(".bar-title")?.textContent.trim() ?? "",
    tag: location.pathname, // a later one replaces it
    icon: $("link[rel=icon]").dataset.badge,
  };
  try {
    showOfPage(title, options);
  } catch {
    showOfWorker(title, options).catch(() => {}); // the title and the icon tell it, too
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

const wantsSound = () => localStorage.getItem(SOUND) !== null;

function storeSound(isWanted) {
  try {
    if (isWanted) localStorage.setItem(SOUND, "on");
    else localStorage.removeItem(SOUND);
  } catch {
    // Without storage it stays off.
  }
}

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
