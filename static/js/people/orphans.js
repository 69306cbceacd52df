// Messages that waited for a chat which is gone: deleted, or no longer shared with their
// author. The page of a new chat gives their texts back; the files were the chat's.

import { $, notice, prepend } from "../dom.js";
import { local } from "../stored.js";
import { gettext } from "../texts.js";
import { Waiting } from "./waiting.js";

export async function giveBackOrphans(user, box) {
  const prefix = `parley:outbox:${user}:`;
  const names = local.names.filter((name) => name.startsWith(prefix));
  const chats = names.map((name) => name.slice(prefix.length));
  for (const chat of chats) {
    if (chat === "new" || !(await isGone(chat))) continue;
    const waiting = new Waiting(user, chat);
    const { messages } = waiting; // of now: another tab may have them
    for (const { key } of messages) waiting.remove(key);
    giveBack(box, messages.map(({ text }) => text).filter((text) => text.trim()));
  }
}

/** Whether this user sees no such chat; by a page that notes no visit. */
export async function isGone(chat) {
  const url = `/chat/${encodeURIComponent(chat)}/queue/`;
  const response = await fetch(url, { headers: { Accept: "text/html" } }).catch(() => null);
  return response?.status === 404;
}

function giveBack(box, texts) {
  if (!texts.length) return;
  prepend(box, texts.join("\n\n"));
  const words = gettext(
    "This conversation no longer exists. Your message is still here: send it to begin a new one.",
  );
  $("#composer-errors").replaceChildren(notice(words));
}
