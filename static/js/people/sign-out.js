// Signing out: nothing that the user wrote stays in the browser, and no tab goes on
// showing a user who has signed out, or in whose place another has signed in.

import { isSessionOver, leave, signIn } from "../dom.js";
import { renewPage, watchForms } from "./cover.js";
import { removeFilesOf } from "../stored-files.js";
import { local, session } from "../stored.js";
import { LAST_USER, forgetUser, lastUser, rememberUser } from "./waiting.js";

export const SENT = "parley:sent"; // key and draft of what a form sent, until the next page

const SIGNED_OUT = "parley:signed-out"; // time of the last sign-out
const SIGNED_IN = "parley:signed-in"; // time of the last sign-in
const LEAVING = "parley:signing-out"; // of the tab that signs out
const ENTERING = "parley:signing-in"; // of the tab that shows the sign-in page
const PATIENCE = 2000; // milliseconds for the browser to remove files
const WRITTEN = ["draft", "outbox", "files"]; // names of what is not sent yet, by user
const NOBODYS = /^parley:(draft|outbox|files):[^:]*$/; // of versions that named no user

/** Leaves the page when its user has signed out in any tab, or covers it if a form was
 * edited, until they are back. Leaves it when another user has signed in. */
export function leaveWithUser(user) {
  watchForms();
  addEventListener("storage", async ({ key, newValue }) => {
    if (key === SIGNED_OUT) await leaveEndedSession("/chats/");
    else if (key === SIGNED_IN) await renewPage(user);
    else if (key === LAST_USER && newValue && newValue !== user) signIn(); // as the other
  });
  rememberUser(user);
  if (takeMark(ENTERING)) note(SIGNED_IN);
}

/** Whether the session has ended, by a page that needs one: opens the sign-in then, or
 * covers the page if a form was edited. */
export async function leaveEndedSession(url) {
  if (!(await isSessionOver(url))) return false;
  leave();
  return true;
}

/** Of the sign-in page, and the one after the deletion of an account: other tabs follow
 * a sign-out. A session that ended otherwise loses them nothing that they show. */
export function tellOtherTabs() {
  if (takeMark(LEAVING) || lastUser() === null) note(SIGNED_OUT);
  setMark(ENTERING);
}

/** Without storage other tabs learn it from their next request. */
const note = (key) => local.set(key, String(Date.now()));
const setMark = (name) => session.set(name, "1");

function takeMark(name) {
  const isSet = session.get(name) !== null;
  session.remove(name);
  return isSet;
}

/** Deletes what is not sent, so that the browser's next user does not find it. */
export function forgetOnSignOut(user) {
  forget((name) => NOBODYS.test(name));
  document.addEventListener("submit", async (event) => {
    const { target } = event;
    // Not its property, which is a field of this name in forms of the admin.
    if (!target.getAttribute("action")?.endsWith("/logout/")) return;
    event.preventDefault(); // a page that is left ends what it has begun
    const forgotten = forgetWritten(user);
    setMark(LEAVING);
    await Promise.race([forgotten, new Promise((resolve) => setTimeout(resolve, PATIENCE))]);
    HTMLFormElement.prototype.submit.call(target);
  });
}

/** Of a user whose account is over or who signs out. Resolves when their files are gone. */
export async function forgetWritten(user) {
  forgetUser();
  session.remove(SENT);
  const own = WRITTEN.map((kind) => `parley:${kind}:${user}:`);
  forget((name) => own.some((prefix) => name.startsWith(prefix)));
  await removeFilesOf(user);
}

function forget(isTheirs) {
  for (const name of local.names) if (isTheirs(name)) local.remove(name);
}
