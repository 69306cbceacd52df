// Shows a picture of the chat large, over the page. Without JavaScript its link opens it.

import { closeByBackdrop } from "../backdrop.js";
import { $ } from "../dom.js";

export function openPictures() {
  const dialog = $("#lightbox");
  closeByBackdrop(dialog);
  document.addEventListener("click", (event) => {
    const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.button;
    const picture = event.target.closest(".picture, .diagram-open");
    if (picture && isPlain && dialog.showModal) {
      event.preventDefault();
      open(dialog, picture);
    } else if (event.target.closest("[data-close-picture]")) dialog.close();
  });
}

function open(dialog, picture) {
  const from = picture.querySelector("img");
  const shown = dialog.querySelector("img");
  shown.src = from.src;
  shown.alt = from.alt;
  const original = dialog.querySelector("a");
  original.hidden = !picture.href;
  if (picture.href) original.href = picture.href;
  dialog.showModal();
}
