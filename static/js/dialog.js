// Opens pages that are a small form (rename, delete) as a dialog: with the page's own form,
// or with what the page names as the part for a dialog.

import { closeByBackdrop } from "./backdrop.js";
import { $, fetched, focusOn, openInstead } from "./dom.js";
import { adviceFor, posted, sayNotSent } from "./people/posting.js";
import { localiseTimes } from "./times.js";

const TITLE = "input[type=text]";

/** `onSaved` is called when a form that stays in its page was saved. */
export function openInDialog(onSaved) {
  const dialog = $("#dialog");
  dialog.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-in-place]")) return;
    event.preventDefault();
    save(dialog, event.target, onSaved);
  });
  closeByBackdrop(dialog);
  dialog.addEventListener("close", () => focusAgain(dialog));
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (link && isPlain(event)) {
      event.preventDefault();
      await open(dialog, link);
    } else if (event.target.closest("[data-cancel]") && dialog.open) {
      event.preventDefault();
      dialog.close();
    }
  });
}

async function open(dialog, link) {
  const menu = link.closest("details");
  // The link is hidden from now on, so it could not have the focus again.
  menu?.querySelector("summary").focus();
  menu?.removeAttribute("open");
  dialog.dataset.row = link.closest(".row")?.querySelector(".row-link").pathname ?? "";
  try {
    const form = await fetched(link.href, "main :is([data-dialog-part], form)");
    $("#sidebar").hidePopover?.();
    dialog.setAttribute("aria-label", form.querySelector("h1").textContent);
    localiseTimes(form);
    dialog.replaceChildren(form); // before it opens, so that it focuses one of these controls
    dialog.showModal();
    form.querySelector(TITLE)?.select();
  } catch (error) {
    openInstead(link.href, error);
  }
}

/** Shows form errors in the dialog; if the request fails, the form stays. */
async function save(dialog, form, onSaved) {
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const { isSaved, response } = await posted(form.getAttribute("action"), new FormData(form));
    if (!isSaved) return await showProblems(dialog, form, response);
  } catch {
    return sayNotSent(form);
  }
  dialog.close();
  await onSaved();
  focusAgain(dialog);
}

/** Focuses the row that the dialog was about, if its menu was rendered anew. */
function focusAgain({ dataset }) {
  const isLost = [document.body, $("#list")].includes(document.activeElement);
  if (!isLost || !dataset.row) return;
  const links = [...document.querySelectorAll(".row-link")];
  links.find(({ pathname }) => pathname === dataset.row)?.focus();
}

/** Shows the form as the server has refused it, and focuses what is wrong in it. */
async function showProblems(dialog, form, response) {
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const refused = page.querySelector("main form[data-in-place]");
  if (!refused) return sayNotSent(form, adviceFor(response.status));
  const fresh = document.adoptNode(refused);
  dialog.replaceChildren(fresh);
  const problem = fresh.querySelector(".field-error, .notice.is-error");
  problem?.setAttribute("role", "alert");
  const field = problem?.closest(".field")?.querySelector("input, select, textarea");
  if (field) field.focus();
  else focusOn(problem ?? fresh);
}

function isPlain(event) {
  return !(event.ctrlKey || event.metaKey || event.shiftKey || event.button);
}
