// Tool choice of a conversation: saves each checkbox when it changes.

import { $, notice, slot } from "./dom.js";
import { postedInTime } from "./people/posting.js";
import { gettext } from "./texts.js";

/** `url` stores the choice; a new conversation has none: its first message sends it. */
export function chooseTools(url) {
  const menu = $("#tools");
  if (!menu) return;
  let last = Promise.resolve();
  const showCount = () => (slot(menu, "count").textContent = countTools(menu));
  showCount(); // a draft may have changed the choice
  menu.addEventListener("change", () => {
    const boxes = [...menu.querySelectorAll("[name=tool]")];
    showCount();
    if (url) last = last.then(() => save(url, boxes)); // in the order of the choices
  });
}

/** The number of enabled tools among those that are shown. */
export function countTools(menu) {
  const boxes = [...menu.querySelectorAll("[name=tool]:checked")];
  return boxes.filter((box) => !box.closest("label").hidden).length;
}

let complaint = null;

async function save(url, boxes) {
  const body = new FormData();
  body.set("csrfmiddlewaretoken", $("#composer [name=csrfmiddlewaretoken]").value);
  for (const box of boxes) if (box.checked) body.append("tool", box.value);
  try {
    const { isSaved, response } = await postedInTime(url, body);
    if (!isSaved) throw new Error(response.status);
    complaint?.remove(); // of an earlier choice, which this one contains
  } catch {
    const words = gettext("The choice of tools could not be saved. Try again.");
    complaint = notice(words);
    $("#composer-errors").replaceChildren(complaint);
  }
}
