// Pages that are a small form open as a dialog over this one; the form is the page's own.

import { $, fetched } from "./dom.js";

export function openInDialog() {
  const dialog = $("#dialog");
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
    dialog.replaceChildren(form);
    dialog.setAttribute("aria-label", form.querySelector("h1").textContent);
    dialog.showModal();
    form.querySelector("input[type=text]")?.select();
  } catch {
    location.assign(link.href);
  }
}

function isPlain(event) {
  return !(event.ctrlKey || event.metaKey || event.shiftKey || event.button);
}
