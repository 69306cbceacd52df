// Posts a form's fields without leaving the page.

import { SignedOut, notice } from "../dom.js";
import { gettext } from "../texts.js";
import { leaveEndedSession } from "./sign-out.js";

const ANSWERED_IN = 10_000; // milliseconds for a change behind which the next ones wait

/**
 * `{isSaved, response}`; what is not saved, the response says. Throws if no answer came,
 * or if the session has ended: the page is then left, or covered with what was typed.
 */
export async function posted(url, body, signal = undefined) {
  const response = await fetch(url, { method: "POST", body, redirect: "manual", signal });
  const isSaved = response.type === "opaqueredirect"; // or it leads to the sign-in
  const isDoubtful = isSaved || response.status === 403;
  if (isDoubtful && (await leaveEndedSession("/chats/"))) throw new SignedOut();
  return { isSaved, response };
}

/** Throws also if no answer comes for long, so that the next change can be sent. */
export function postedInTime(url, body) {
  return posted(url, body, AbortSignal.timeout(ANSWERED_IN));
}

/** What a reader does about an answer with this status; without one the network failed.
 *  `refused` is said of other refusals of the server. */
export function adviceFor(status = 0, refused = undefined) {
  if (status === 404) return gettext("This is gone, or no longer shared with you. Load the page again.");
  if (status === 403) return gettext("The server has refused this. Load the page again.");
  const isRefused = status >= 400 && status < 500 && status !== 429;
  return (isRefused && refused) || gettext("This could not be sent. Try again.");
}

/** The form stays as it is, with a notice: it can be sent again. */
export function sayNotSent(form, why = adviceFor()) {
  form.querySelector(".notice.is-error")?.remove();
  form.prepend(notice(why));
  // A hidden one is disabled so that Enter presses nothing.
  for (const button of form.querySelectorAll("button:not([hidden])")) button.disabled = false;
}
