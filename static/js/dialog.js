// Pages that are a small form open as a dialog over this one; the form is the page's own.

import { $, fetched } from "./dom.js";

/** `onSaved` is called when a form that stays in its page was saved. */
export function openInDialog(onSaved) {
  const dialog = $("#dialog");
  dialog.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-in-place]")) return;
    event.preventDefault();
    save(dialog, event.target, onSaved);
  });
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (link && isPlain(event)) {
      event.preventDefault();
      await open(dialog, link);
    } else if (event.target.closest("[data-cancel]") && dialog.open) {
      event.preventDefault();
      dialog.close();
    } else if (event.target === dialog) {
      dialog.close(); // outside of it
    }
  });
}

async function open(dialog, link) {
  link.closest("details")?.removeAttribute("open");
  try {
    const form = await fetched(link.href, "main form");
    $("#sidebar").hidePopover?.();
    dialog.setAttribute("aria-label", form.querySelector("h1").textContent);
    dialog.showModal();
    show(dialog, form);
  } catch {
    location.assign(link.href);
  }
}

/** What is wrong with it is said in the dialog; without an answer its page is asked. */
async function save(dialog, form, onSaved) {
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const body = new FormData(form);
    const asked = { method: "POST", body, redirect: "manual" };
    const response = await fetch(form.getAttribute("action"), asked);
    if (response.type !== "opaqueredirect") {
      show(dialog, await formIn(response));
      return;
    }
    dialog.close();
    await onSaved();
  } catch {
    form.submit();
  }
}

async function formIn(response) {
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return document.adoptNode(page.querySelector("main form"));
}

function show(dialog, form) {
  dialog.replaceChildren(form);
  form.querySelector("input[type=text]")?.select();
}

function isPlain(event) {
  return !(event.ctrlKey || event.metaKey || event.shiftKey || event.button);
}
