// Which tools a conversation uses: boxes that are kept as soon as they are ticked.

import { $, notice, slot } from "./dom.js";

/** `url` keeps the choice; a new conversation has none, its first message brings it. */
export function chooseTools(url) {
  const menu = $("#tools");
  if (!menu) return;
  menu.addEventListener("change", () => {
    const boxes = [...menu.querySelectorAll("[name=tool]")];
    slot(menu, "count").textContent = countTools(menu);
    if (url) keep(url, boxes);
  });
}

/** How many are on, of those that are shown. */
export function countTools(menu) {
  const boxes = [...menu.querySelectorAll("[name=tool]:checked")];
  return boxes.filter((box) => !box.closest("label").hidden).length;
}

async function keep(url, boxes) {
  const body = new FormData();
  body.set("csrfmiddlewaretoken", $("#composer [name=csrfmiddlewaretoken]").value);
  for (const box of boxes) if (box.checked) body.append("tool", box.value);
  try {
    const response = await fetch(url, { method: "POST", body, redirect: "manual" });
    if (response.type !== "opaqueredirect") throw new Error(response.status);
  } catch {
    const words = "The choice of tools could not be kept. Try again.";
    $("#composer-errors").replaceChildren(notice(words));
  }
}
