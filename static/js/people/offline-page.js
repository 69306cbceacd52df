// The offline page: keeps a message for later, and looks whether the server is back.

import { Waiting, lastUser } from "./waiting.js";

const INTERVAL = 5000; // milliseconds between two attempts

const find = (id) => document.getElementById(id);
const user = lastUser();
const conversation = /^\/chat\/([^/]+)\//.exec(location.pathname)?.[1] ?? "new";
/** The page that sends what was kept here, unless its chat is gone. */
const SENDER = conversation === "new" ? "/" : `/chat/${conversation}/`;
const waiting = user && new Waiting(user, conversation);

find("try-again").href = location.pathname + location.search;
if (waiting) {
  find("waiting-form").hidden = false;
  find("waiting-form").addEventListener("submit", keep);
  show();
}
addEventListener("online", look);
setInterval(look, INTERVAL);
look();

function keep(event) {
  event.preventDefault();
  const text = find("waiting-text").value;
  if (!text.trim()) return;
  const message = { key: newKey(), text, parts: [], model: "", at: Date.now() };
  if (!waiting.add(message)) return; // the text stays in its box
  find("waiting-text").value = "";
  find("waiting-status").textContent = find("waiting-status").dataset.kept;
  show();
}

function show() {
  const kept = waiting.messages.filter(({ isUnsent }) => !isUnsent);
  const rows = kept.map(({ text }) => {
    const row = document.createElement("li");
    row.dir = "auto";
    row.textContent = text.slice(0, 200);
    return row;
  });
  find("waiting-list").replaceChildren(...rows);
  find("waiting").hidden = rows.length === 0;
}

async function look() {
  const answer = await fetch("/healthz", { cache: "no-store" }).catch(() => null);
  if (!answer?.ok || find("waiting-text").value) return; // do not take a text away
  const next = location.pathname + location.search;
  location.replace(waiting?.messages.length ? await findSender() : next);
}

/** A new chat's page gives back what was written for a chat that is gone. */
async function findSender() {
  if (conversation === "new") return SENDER;
  const answer = await fetch(`${SENDER}queue/`).catch(() => null);
  return answer?.status === 404 ? "/" : SENDER;
}

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
