// Stores a rating without leaving the page, with the form's own address.

import { $, announce } from "../dom.js";

export function rateInPlace() {
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches(".rating")) return;
    event.preventDefault();
    const body = new FormData(form, event.submitter);
    try {
      const options = { method: "POST", body, redirect: "manual" };
      const response = await fetch(form.getAttribute("action"), options);
      if (response.type !== "opaqueredirect") throw new Error("refused");
      show(form, body.get("value"));
      if (!event.submitter?.matches("[data-rate]")) closeComment(form);
      announce($("#reading").dataset.rated);
    } catch {
      form.requestSubmit ? submitPlainly(form, event.submitter) : form.submit();
    }
  });
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

function submitPlainly(form, submitter) {
  const field = Object.assign(document.createElement("input"), { type: "hidden" });
  field.name = "value";
  field.value = submitter?.value ?? "";
  form.append(field);
  form.submit();
}
