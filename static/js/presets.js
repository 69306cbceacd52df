// What a new chat begins with: the choice says which model and tools go with it.

import { $, slot } from "./dom.js";
import { countTools } from "./tools.js";

/** `onModel` is told when the usual model has become another one. */
export function choosePreset(onModel) {
  const presets = $("#presets");
  if (!presets) return;
  const show = () => {
    const chosen = $("input:checked", presets);
    if (!chosen) return;
    showModel(chosen.dataset);
    showTools(chosen.dataset.tools?.split(" "));
    onModel();
  };
  presets.addEventListener("change", show);
  show();
  addEventListener("pageshow", show); // a browser that comes back restores the choice
}

function showModel({ model, demo }) {
  const usual = $("#model [data-usual]");
  if (!usual) return;
  usual.textContent = model ? `${model} (usual)` : "Usual model";
  usual.toggleAttribute("data-demo", demo !== undefined);
}

/** Those that the preset allows; undefined means all. */
function showTools(allowed) {
  const menu = $("#tools");
  if (!menu) return;
  for (const box of menu.querySelectorAll("[name=tool]")) {
    const isAllowed = !allowed || allowed.includes(box.value);
    box.closest("label").hidden = !isAllowed;
  }
  slot(menu, "count").textContent = countTools(menu);
}
