// The chat page, made live. Without this file it works by links and forms.

import { cancelCall, refreshBackground, watchBackground } from "./background.js";
import { Composer, Outbox, forgetOnSignOut } from "./composer.js";
import { Refused, connect } from "./connection.js";
import { copyOnClick } from "./copy.js";
import { openInDialog } from "./dialog.js";
import { $, checkSession, fetched, newKey, say } from "./dom.js";
import { LiveTurns } from "./live.js";
import { choosePreset } from "./presets.js";
import { answerOnSubmit } from "./questions.js";
import { keepAtEnd, keepingPlace, toEnd } from "./scroll.js";
import { searchOnInput } from "./search.js";
import { addPartsOnClick } from "./text-parts.js";
import { chooseTools } from "./tools.js";

const MENUS = ".row-menu[open], .tools-menu[open], .user-menu[open]";
const PATIENCE = 2000; // milliseconds without a connection before we say so

const main = $("#conversation");
const { conversation, page, socket, api, uploads, tools } = main.dataset;
const isLive = conversation !== undefined && "latest" in main.dataset;

const turns = new LiveTurns({
  page,
  transcript: $("#transcript"),
  onChange: changed,
  onBackground: refreshBackground,
});
const composer = new Composer({
  conversation,
  uploads: isLive ? uploads : undefined,
  onSend: send,
  onRefused: takeBack,
});
const outbox = isLive && new Outbox(conversation);
const connection = isLive && open();

start();

function start() {
  arrive();
  keepAtEnd();
  copyOnClick();
  forgetOnSignOut();
  addPartsOnClick();
  openInDialog(savedInPlace);
  answerOnSubmit();
  chooseTools(tools);
  choosePreset(() => composer.showDemo());
  watchBackground(() => turns.renew());
  searchOnInput(refreshList);
  document.addEventListener("click", onClick);
  document.addEventListener("keydown", onKey);
  document.addEventListener("parley:rendered", ({ detail }) => localiseTimes(detail));
  document.addEventListener("visibilitychange", () => document.hidden || refreshList());
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  localiseTimes(document);
  if (matchMedia("(pointer: fine)").matches) composer.focus();
  if (!isLive) return;
  for (const turnId of turns.adopt()) connection.follow(turnId);
  for (const message of outbox.messages) deliver(message);
  changed();
}

/** Whoever comes from elsewhere begins at the end; a reload keeps its place. */
function arrive() {
  const target = document.getElementById(location.hash.slice(1));
  const isEnd = !target || target.id === "end" || target.matches(".turn:last-child");
  const [{ type }] = performance.getEntriesByType("navigation");
  if (!isLive || !isEnd) return;
  if (target) history.replaceState(null, "", location.pathname + location.search);
  if (target || type === "navigate") toEnd();
}

function open() {
  const url = new URL(socket, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  return connect({
    socketURL: url.href,
    turnsURL: api,
    csrfToken: $("[name=csrfmiddlewaretoken]", $("#composer")).value,
    listener: {
      onEvent: (turnId, event, position) => turns.receive(turnId, event, position),
      onTurn: foreign,
      onState: showState,
      onRenamed: renamed,
      checkSession: () => checkSession($("#list").dataset.url),
    },
  });
}

// Sending

/** False where a new page is needed: a new conversation, or an older part of one. */
function send(text, takeParts) {
  hideWelcome();
  if (!isLive) {
    turns.begin(text);
    toEnd();
    return false;
  }
  const message = { key: newKey(), text, parts: takeParts(), model: composer.model };
  outbox.add(message);
  deliver(message);
  return true;
}

/** What was begun here and not taken there. */
function takeBack() {
  $("#transcript .turn:not([data-turn])")?.remove();
  const welcome = $("#welcome");
  if (welcome) welcome.hidden = false;
}

async function deliver(message) {
  const article = turns.begin(message.text, message.parts);
  toEnd();
  try {
    turns.accepted(article, await connection.send(message));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    article.remove();
    composer.giveBack(message, error.message);
  }
  outbox.remove(message.key);
  refreshList();
}

/** Turns opened while nobody told us of them. */
async function catchUp() {
  const rendered = await fetched(page, "#transcript");
  for (const { dataset } of rendered.querySelectorAll(".turn")) {
    await foreign(dataset.turn);
  }
}

async function foreign(turnId) {
  if (turns.has(turnId)) return;
  hideWelcome();
  await turns.addForeign(turnId);
  connection.follow(turnId);
}

function hideWelcome() {
  const welcome = $("#welcome"); // it holds the button whose value is being sent
  if (welcome) welcome.hidden = true;
}

// Buttons and keys

function onClick(event) {
  closeMenus(event.target);
  const button = event.target.closest("[data-action], [data-earlier]");
  if (!button) return;
  const act = "earlier" in button.dataset ? earlier : ACTIONS[button.dataset.action];
  if (act?.(button) !== false) event.preventDefault();
}

const ACTIONS = {
  stop: (button) => {
    if (!isLive) return false;
    stop(button.closest(".turn")?.dataset.turn ?? turns.running);
  },
  "cancel-call": (button) => {
    if (!isLive) return false;
    cancelCall(button);
  },
  continue: (button) => {
    if (!isLive) return false;
    goOn(button);
  },
  "choose-model": () => composer.chooseModel(),
  retry: (button) => {
    if (!isLive) return false;
    retry(button);
  },
};

function stop(turnId) {
  if (!turnId) return;
  connection.stop(turnId);
  turns.stopping(turnId);
}

function retry(button) {
  const body = new FormData($("#composer"));
  body.set("key", newKey());
  const words = "The question could not be sent again. Choose another model.";
  openTurn(button, body, words);
}

function goOn(button) {
  const body = new FormData();
  body.set("csrfmiddlewaretoken", $("#composer [name=csrfmiddlewaretoken]").value);
  openTurn(button, body, "The message could not be continued. Try again.");
}

/** Posts the button's form; the server answers with the page that has the new turn. */
async function openTurn(button, body, complaint) {
  button.disabled = true;
  try {
    const asked = { method: "POST", body, redirect: "manual" };
    const response = await fetch(button.formAction, asked);
    if (response.type !== "opaqueredirect") throw new Error("refused");
    await catchUp();
    toEnd();
    refreshBackground();
  } catch {
    composer.complain(complaint);
  }
  button.disabled = false;
}

function onKey(event) {
  if (event.key !== "Escape" || event.isComposing || event.defaultPrevented) return;
  if ($(`dialog[open], :popover-open, ${MENUS}`)) {
    return closeMenus(null);
  }
  if (isLive && !event.target.matches("#model, #search")) stop(turns.running);
}

function closeMenus(target) {
  for (const menu of document.querySelectorAll(MENUS)) {
    if (!menu.contains(target)) menu.open = false;
  }
}

/** Earlier messages come before those shown, which stay where they are. */
async function earlier(link) {
  const rendered = await fetched(link.href, "#transcript");
  const older = [...rendered.children].filter((child) => !child.matches(".to-latest"));
  localiseTimes(rendered);
  keepingPlace(link.nextElementSibling, () => link.replaceWith(...older));
}

// What else is on the page

function changed() {
  const running = turns.running;
  $("#stop").hidden = !running;
  if (!isLive) return;
  localiseTimes($("#transcript"));
  if (running) return;
  refreshList();
  refreshBackground();
}

let lostTimer = 0;

function showState(isConnected) {
  if (!isConnected) {
    lostTimer ||= setTimeout(() => ($("#banner").hidden = false), PATIENCE);
    return;
  }
  $("#banner").hidden = true;
  if (lostTimer) {
    catchUp().catch(() => {});
    refreshBackground();
  }
  lostTimer = clearTimeout(lostTimer) ?? 0;
}

/** A title was changed, here or in another tab. */
async function renamed(id) {
  refreshList();
  if (id !== conversation) return;
  const fresh = await fetched(page, ".bar-title").catch(() => null);
  if (!fresh) return;
  $(".bar-title").textContent = fresh.textContent;
  document.title = `${fresh.textContent} – Parley`;
}

/** A form of a dialog was saved; the page stays as it is, but for what it shows. */
async function savedInPlace() {
  await refreshList({ isForced: true });
  if (isLive) await renamed(conversation);
  $("#list").focus({ preventScroll: true });
  say("Saved.");
}

async function refreshList({ isForced = false } = {}) {
  const list = $("#list");
  const isInUse = list.contains(document.activeElement) || $("[open]", list);
  if ((isInUse && !isForced) || !navigator.onLine) return;
  const asked = location.search;
  const query = new URLSearchParams(asked);
  query.set("current", conversation ?? "");
  try {
    const fresh = await fetched(`${list.dataset.url}?${query}`);
    if (location.search !== asked) return; // something else is sought meanwhile
    list.replaceChildren(...fresh.childNodes);
  } catch {
    // The next change tries again.
  }
}

/** The server writes times in its own zone; people live in theirs. */
function localiseTimes(root) {
  const style = { dateStyle: "medium", timeStyle: "short" };
  const format = new Intl.DateTimeFormat(undefined, style);
  for (const time of root.querySelectorAll("time:not([data-local])")) {
    time.textContent = format.format(new Date(time.dateTime));
    time.dataset.local = "";
  }
}
