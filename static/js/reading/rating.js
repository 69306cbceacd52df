// Stores a rating without leaving the page, with the form's own address.

import { $, announce } from "../dom.js";
import { adviceFor, posted, sayNotSent } from "../people/posting.js";

export function rateInPlace() {
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches(".rating")) return;
    event.preventDefault();
    const body = new FormData(form, event.submitter);
    try {
      const { isSaved, response } = await posted(form.getAttribute("action"), body);
      if (!isSaved) return sayNotSent(form, await problemsOf(response));
    } catch {
      return sayNotSent(form);
    }
    $(".notice.is-error", form)?.remove(); // of an earlier attempt
    show(form, body.get("value"));
    if (!event.submitter?.matches("[data-rate]")) closeComment(form);
    announce($("#reading").dataset.rated);
  });
}

/** What the refused page says is wrong; where it is another page, what to do. */
async function problemsOf(response) {
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const found = [...page.querySelectorAll(".field-error")];
  return found.map(({ textContent }) => textContent.trim()).join(" ") || adviceFor(response.status);
}

/** The buttons' next values, as the server would render them. */
function show(form, value) {
  for (const button of form.querySelectorAll("button[data-rate]")) {
    const isChosen = button.dataset.rate === value;
    button.setAttribute("aria-pressed", isChosen);
    button.value = isChosen ? "" : button.dataset.rate;
  }
  const comment = form.querySelector(".rating-comment");
  comment.hidden = !value;
  comment.querySelector("button").value = value;
  const text = comment.querySelector("textarea");
  if (!value) text.value = "";
  const label = comment.querySelector("summary");
  label.textContent = text.value.trim() ? label.dataset.given : label.dataset.empty;
}

/** What was saved is behind its button, which gets the focus. */
function closeComment(form) {
  form.querySelector(".rating-comment").open = false;
  form.querySelector(".rating-comment summary").focus();
}
