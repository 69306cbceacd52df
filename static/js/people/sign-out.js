// Signing out: nothing that the user wrote stays in the browser, and no tab goes on
// showing a user who has signed out, or in whose place another has signed in.

import { isSessionOver, signIn } from "../dom.js";
import { coverPage, isCovered, uncoverPage, watchForms } from "./cover.js";
import { LAST_USER, forgetUser, lastUser, rememberUser } from "./waiting.js";

export const SENT = "parley:sent"; // what a new chat's page sent, until the next page shows it

const SIGNED_OUT = "parley:signed-out"; // when somebody signed out last
const WRITTEN = ["draft", "outbox", "files"]; // names of what is not sent yet, by user
const NOBODYS = /^parley:(draft|outbox|files):[^:]*$/; // of versions that named no user

/** Leaves the page when its user has signed out in any tab, or covers it if a form was
 * edited, until they are back. Leaves it when another user has signed in. */
export function leaveWithUser(user) {
  const wasEdited = watchForms();
  addEventListener("storage", async ({ key, newValue }) => {
    if (key === SIGNED_OUT && (await isSessionOver("/chats/"))) {
      if (!(wasEdited() && coverPage())) signIn();
    } else if (key === LAST_USER && newValue) {
      if (newValue !== user) signIn(); // to the same page of the other user
      else if (isCovered()) await uncoverPage();
    }
  });
  rememberUser(user);
}

/** Of the sign-in page, and the one after the deletion of an account: other tabs follow
 * a sign-out. A session that ended otherwise loses them nothing that they show. */
export function tellOtherTabs() {
  try {
    if (lastUser() === null) localStorage.setItem(SIGNED_OUT, String(Date.now()));
  } catch {
    // Without storage other tabs learn it from their next request.
  }
}

/** Deletes what is not sent, so that the browser's next user does not find it. */
export function forgetOnSignOut(user) {
  forget((name) => NOBODYS.test(name));
  document.addEventListener("submit", ({ target }) => {
    // Not its property, which is a field of this name in forms of the admin.
    if (target.getAttribute("action")?.endsWith("/logout/")) forgetWritten(user);
  });
}

/** Of a user whose account is over or who signs out. */
export function forgetWritten(user) {
  forgetUser();
  forgetSent();
  const own = WRITTEN.map((kind) => `parley:${kind}:${user}:`);
  forget((name) => own.some((prefix) => name.startsWith(prefix)));
}

function forgetSent() {
  try {
    sessionStorage.removeItem(SENT);
  } catch {
    // Where the browser denies storage there is nothing in it.
  }
}

function forget(isTheirs) {
  try {
    for (const name of Object.keys(localStorage)) {
      if (isTheirs(name)) localStorage.removeItem(name);
    }
  } catch {
    // Where the browser denies storage there is nothing in it.
  }
}
