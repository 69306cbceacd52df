// Entry point of the chat page. Without JavaScript the page works with links and forms.

import { cancelCall, refreshBackground, watchBackground } from "./background.js";
import { Branch } from "./branches/branch.js";
import { editInPlace } from "./branches/edit-in-place.js";
import { closeInnermost, closeMenus } from "./closing.js";
import { Composer } from "./composer.js";
import { Refused, connect } from "./connection.js";
import { refreshContext } from "./context.js";
import { copyOnClick } from "./copy.js";
import { openInDialog } from "./dialog.js";
import { $, SignedOut, fetched, newKey, announce, problemIn } from "./dom.js";
import { renew } from "./library/renew.js";
import { countElsewhere, notifyOf, showTitle, watchAbsence } from "./notify/notify.js";
import { showEarlier, watchEarlier } from "./older-messages.js";
import { isGone } from "./people/orphans.js";
import { adviceFor, posted } from "./people/posting.js";
import { leaveEndedSession } from "./people/sign-out.js";
import { Waiting, isTooOld } from "./people/waiting.js";
import { Rounds } from "./polling/rounds.js";
import { choosePreset } from "./presets.js";
import { Queue } from "./queue/queue.js";
import { answerOnSubmit, showAllDecided, showDecided } from "./questions.js";
import { markFound } from "./reading/found.js";
import { startReading } from "./reading/reading.js";
import { RunningTurns } from "./running-turns.js";
import { keepAtEnd, toEnd } from "./scroll.js";
import { searchOnInput } from "./search.js";
import { addPartsOnClick } from "./text-parts.js";
import { gettext } from "./texts.js";
import { localiseTimes } from "./times.js";
import { chooseTools } from "./tools.js";

const ELSEWHERE = 5000; // milliseconds between looks at conversations that run elsewhere
const WHILE_HIDDEN = 30_000; // between them, while nobody sees the page
const PATIENCE = 2000; // milliseconds without a connection before the page says so

const main = $("#conversation");
const { conversation, page, socket, api, changes, uploads, tools, seen } = main.dataset;
const isLive = conversation !== undefined && "latest" in main.dataset;

const turns = new RunningTurns({
  page,
  transcript: $("#transcript"),
  onChange: changed,
  onBackground: refreshBackground,
  onQueue: () => queue?.refresh(),
  onNews: (what) => {
    notifyOf(what);
    if (what === "waiting") refreshList(); // its row has a sign of that
    if (!document.hidden) noteSeen();
  },
});
const composer = new Composer({
  conversation,
  uploads: isLive ? uploads : undefined,
  onSend: send,
  onRefused: takeBack,
});
const branch = new Branch({
  page,
  transcript: $("#transcript"),
  turns,
  follow: (turnId) => connection.follow(turnId),
});
// Sent but not acknowledged; a reload sends them again.
const outbox = isLive && new Waiting(document.body.dataset.user, conversation);
const connection = isLive && open();
const queue = isLive && new Queue({
  onShown: showWaiting,
  giveBack: (text, why) => composer.giveBack({ text }, why),
  complain: (why) => composer.complain(why),
});

let isStarting = true;
start();

function start() {
  arrive();
  if (matchMedia("(pointer: fine)").matches) composer.focus();
  keepAtEnd();
  copyOnClick();
  addPartsOnClick();
  openInDialog(savedInPlace);
  document.addEventListener("submit", keepInPlace);
  if (isLive) editInPlace(showEdited);
  answerOnSubmit();
  chooseTools(tools);
  choosePreset(() => composer.showDemo());
  watchBackground(showEnded);
  searchOnInput(refreshList);
  watchEarlier(localiseTimes);
  document.addEventListener("click", onClick);
  document.addEventListener("keydown", onKey);
  document.addEventListener("parley:rendered", ({ detail }) => localiseTimes(detail));
  document.addEventListener("visibilitychange", () => document.hidden || refreshList());
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  watchAbsence(noteSeen);
  const look = refreshUnfinished;
  new Rounds({ look, every: ELSEWHERE, whileHidden: WHILE_HIDDEN }).plan();
  goOnLive();
  isStarting = false;
  setTimeout(markFound);
  setTimeout(startReading);
  setTimeout(() => localiseTimes(document));
}

/** Follows what runs, and sends what was not sent before a reload. */
function goOnLive() {
  if (!isLive) return;
  for (const turnId of turns.adopt()) connection.follow(turnId);
  queue.start();
  for (const text of outbox.takeUnsent()) composer.giveBack({ text });
  sendAgain(outbox.messages);
  changed();
}

/** Scrolls to the end, except after a reload, which keeps its position. A last answer
 *  that is too long for one page is read from its beginning on. */
function arrive() {
  const target = document.getElementById(location.hash.slice(1));
  const isEnd = !target || target.id === "end" || target.matches(".turn:last-child");
  const [{ type }] = performance.getEntriesByType("navigation");
  if (!isLive || !isEnd) return;
  if (target) history.replaceState(null, "", location.pathname + location.search);
  if (!target && type !== "navigate") return;
  const long = $("#transcript > .turn:last-child > .answer:has([data-next-part])");
  if (long) long.scrollIntoView({ behavior: "instant" });
  else toEnd();
}

function open() {
  const url = new URL(socket, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  return connect({
    conversation,
    socketURL: url.href,
    turnsURL: api,
    changesURL: changes,
    csrfToken: () => $("[name=csrfmiddlewaretoken]", $("#composer")).value,
    listener: {
      onEvent: (turnId, event, position) => turns.receive(turnId, event, position),
      onTurn: foreign,
      onGoesOn: goesOn,
      onState: showState,
      onRenamed: renamed,
      onQueue: () => queue?.refresh(),
      onDecided: showDecided,
      onOpenQuestions: showAllDecided,
      onBranches: () => branch.sync().then(() => true, () => false),
      checkSession: () => leaveEndedSession($("#list").dataset.url),
      onRemoved: leaveRemoved,
    },
  });
}

// Sending

/** False if a new page is needed: for a new conversation, or an older part of one. */
function send(text, takeParts, when = "") {
  hideWelcome();
  if (!isLive || isComparing()) {
    turns.begin(text);
    toEnd();
    return false;
  }
  const fields = { model: composer.model, branch: branch.last, when };
  const message = { key: newKey(), text, parts: takeParts(), ...fields, at: Date.now() };
  outbox.add(message);
  deliver(message);
  return true;
}

/** Whether several models answer, or have answered: only the server renders that. */
function isComparing() {
  return $("#composer [name=compare]:checked, .comparison") !== null;
}

/** Removes a turn that the server did not accept, and shows the welcome again. */
function takeBack() {
  $("#transcript .turn:not([data-turn])")?.remove();
  const welcome = $("#welcome");
  if (welcome) welcome.hidden = false;
}

/** The page of a new chat gives back what was written here; this chat's page does if the
 *  chat is there again. Nobody has sent it, so no page does. */
function leaveRemoved() {
  const text = composer.takeText();
  if (text.trim()) outbox.addUnsent(newKey(), text);
  if (outbox.messages.length) location.assign("/");
  else location.reload();
}

/** Sends what was not acknowledged before a reload, or gives it back if it is too old. */
function sendAgain(messages) {
  const { keyDays, old: why } = $("#people").dataset;
  const old = messages.filter((message) => isTooOld(message, Number(keyDays)));
  if (old.length) giveBackAll(old, why);
  for (const message of messages) if (!old.includes(message)) deliver(message);
}

function giveBackAll(messages, why) {
  const text = messages.map((message) => message.text).join("\n\n");
  composer.giveBack({ text, parts: messages.flatMap(({ parts }) => parts ?? []) }, why);
  for (const { key } of messages) outbox.remove(key);
}

async function deliver(message) {
  const waits = turns.running !== undefined;
  const article = turns.begin(message.text, message.parts, waits);
  if (waits) queue.add(message.text);
  else toEnd();
  try {
    turns.accepted(article, await connection.send(message));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    article.remove();
    composer.giveBack(message, error.message);
    isGone(conversation).then((gone) => gone && leaveRemoved());
  }
  outbox.remove(message.key);
  if (waits) queue.refresh();
  refreshList();
}

/** Background calls have ended; where their results open a turn, it may be unknown here. */
function showEnded(running) {
  if (turns.renew(running)) catchUp().catch(() => {});
}

/** Adds turns that other clients opened while this page was disconnected. */
async function catchUp() {
  await branch.sync();
}

async function foreign(turnId) {
  if (turns.has(turnId)) return;
  hideWelcome();
  try {
    await branch.add(turnId, () => queue.refresh()); // which does not wait for that
  } finally {
    queue.refresh();
  }
}

/** The messages that wait, in order, are those of the list above the box. */
function showWaiting(messages) {
  turns.showWaiting(messages);
  connection.arrange(messages.map(({ id }) => id));
  changed();
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
  const act = "earlier" in button.dataset ? showEarlier : ACTIONS[button.dataset.action];
  if (act?.(button) !== false) event.preventDefault();
}

const ACTIONS = {
  stop: (button) => {
    if (!isLive) return false;
    const { turn } = button.closest(".turn")?.dataset ?? {};
    stop(turn ? [turn] : turns.runningTogether);
  },
  "cancel-call": (button) => {
    if (!isLive) return false;
    cancelCall(button);
  },
  continue: (button) => {
    if (!isLive) return false;
    goOn(button);
  },
  "show-version": (button) => {
    if (!isLive) return false;
    showVersion(button);
  },
  "choose-model": () => composer.chooseModel(),
  retry: (button) => {
    if (!isLive) return false;
    retry(button);
  },
};

function stop(turnIds) {
  if (document.body.matches(".is-viewer")) return;
  for (const turnId of turnIds) {
    connection.stop(turnId);
    turns.stopping(turnId);
  }
}

/** The server has refused to stop it. */
function goesOn(turnId, why) {
  turns.goesOn(turnId);
  composer.complain(why);
}

function retry(button) {
  const body = new FormData(button.form);
  for (const name of ["text", "file"]) body.delete(name); // of the next message
  body.set("key", newKey());
  const words = gettext("The question could not be sent again. Choose another model.");
  openTurn(button, body, words);
}

/** Shows another version of a message. */
async function showVersion(button) {
  const turnId = button.formAction.split("/").at(-3);
  await openTurn(button, tokenAlone(), gettext("The version could not be shown. Try again."));
  document.getElementById(`turn-${turnId}`)?.scrollIntoView({ block: "nearest" });
  branch.focus(turnId);
}

async function showEdited() {
  await branch.showChosen();
  toEnd();
  if (matchMedia("(pointer: fine)").matches) composer.focus();
  refreshList();
}

function goOn(button) {
  openTurn(button, tokenAlone(), gettext("The message could not be continued. Try again."));
}

/** Without the next message. */
function tokenAlone() {
  const body = new FormData();
  body.set("csrfmiddlewaretoken", $("[name=csrfmiddlewaretoken]").value);
  return body;
}

/** The server has the turn: it is not to be sent again if only its page fails. */
async function showOpened() {
  try {
    await branch.showChosen();
  } catch (error) {
    if (!(error instanceof SignedOut)) location.reload();
    return;
  }
  toEnd();
  refreshBackground();
}

/** Posts the button's form; the server answers with the page that has the new turn. */
async function openTurn(button, body, complaint) {
  button.disabled = true;
  try {
    const options = { method: "POST", body, redirect: "manual" };
    const response = await fetch(button.formAction, options);
    if (response.type === "opaqueredirect") await showOpened();
    else composer.complain((await problemIn(response)) || adviceFor(response.status, complaint));
  } catch {
    composer.complain(adviceFor());
  }
  button.disabled = false;
}

function onKey(event) {
  if (event.key !== "Escape" || event.isComposing || event.defaultPrevented) return;
  if (closeInnermost()) return;
  if (isLive && !event.target.matches("#search")) stop(turns.runningTogether);
}

// Other parts of the page

function changed() {
  const running = turns.running;
  $("#stop").hidden = !running;
  $("#send-menu").hidden = !running;
  if (!isLive || isStarting) return; // the server has just rendered the rest
  localiseTimes($("#transcript"));
  if (running) return;
  refreshList();
  refreshBackground();
  refreshContext();
}

let lostTimer = 0;

function showState(isConnected) {
  if (!isConnected) {
    lostTimer ||= setTimeout(() => ($("#banner").hidden = false), PATIENCE);
    return;
  }
  $("#banner").hidden = true;
  if (lostTimer) refreshMissed();
  lostTimer = clearTimeout(lostTimer) ?? 0;
}

/** What others changed while the connection was lost: nobody tells it again. */
function refreshMissed() {
  catchUp().catch(() => {});
  refreshBackground();
  queue.refresh();
  renamed(conversation);
}

/** A title was changed, here or in another tab. Whether the page shows it now. */
async function renamed(id) {
  const listed = refreshList();
  if (id !== conversation) return listed;
  const fresh = await fetched(page, ".bar-title").catch(() => null);
  if (!fresh) return false;
  $(".bar-title").textContent = fresh.textContent;
  showTitle(`${fresh.textContent} – Parley`);
  return listed;
}

/** Updates the page after a dialog's form was saved. */
async function savedInPlace() {
  await refreshList();
  if (isLive) await renamed(conversation);
  if (document.activeElement === document.body) $("#list").focus({ preventScroll: true });
  announce(gettext("Saved."));
}

/** Pins or archives without leaving the page, which may have a text, files and choices. */
async function keepInPlace(event) {
  const { target: form, submitter } = event;
  if (form.id !== "keep-form") return;
  event.preventDefault();
  submitter.closest("details").open = false;
  try {
    const { isSaved } = await posted(submitter.formAction, new FormData(form, submitter));
    if (isSaved && (await refreshList())) announce(gettext("Saved."));
    else location.reload(); // which says what is wrong
  } catch (error) {
    if (!(error instanceof SignedOut)) composer.complain(adviceFor());
  }
}

let refreshes = 0;

/** Requests the list and renders it in place; of several requests only the last counts.
 *  Whether that succeeded. */
async function refreshList() {
  if (!navigator.onLine) return false;
  const number = ++refreshes;
  const list = $("#list");
  const search = location.search;
  const query = new URLSearchParams(search);
  query.set("current", conversation ?? "");
  try {
    const fresh = await fetched(`${list.dataset.url}?${query}`);
    // The reader may search for something else now.
    if (number !== refreshes || location.search !== search) return true;
    renew(list, fresh);
    countElsewhere(list);
    showOpenQuestions($("#open-questions").value);
    return true;
  } catch {
    return false; // the next change tries again
  }
}

/** At the foot of the sidebar, beside the user's name and in the menu. */
function showOpenQuestions(number) {
  for (const count of document.querySelectorAll("[data-open-questions]")) {
    count.textContent = number;
    (count.closest("a") ?? count).hidden = number === "0";
  }
}

/** Tells the server that the reader has seen what has ended, for the unread dots. */
function noteSeen() {
  if (!seen) return;
  const csrfToken = $("[name=csrfmiddlewaretoken]", $("#composer")).value;
  const headers = { "X-CSRFToken": csrfToken };
  fetch(seen, { method: "POST", headers, keepalive: true }).catch(() => {});
}

/** Other conversations of the list that run or wait: their end is shown by a dot. */
async function refreshUnfinished() {
  if ($(".row:not(.is-current) :is(.spinner, .is-waiting)", $("#list"))) await refreshList();
}
