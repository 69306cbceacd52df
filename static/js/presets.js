// Preset picker of a new chat: updates the model and the tools with the chosen preset.

import { $, slot } from "./dom.js";
import { gettext, interpolate } from "./texts.js";
import { countTools } from "./tools.js";

/** Calls `onModel` when the usual model has changed. */
export function choosePreset(onModel) {
  const presets = $("#presets");
  if (!presets) return;
  const show = () => {
    const chosen = $("input:checked", presets);
    if (!chosen) return;
    showModel(chosen.dataset);
    offerModels(JSON.parse(chosen.dataset.models ?? "[]"));
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
  usual.textContent = model
    ? interpolate(gettext("%(model)s (usual)"), { model })
    : gettext("Usual model");
  usual.toggleAttribute("data-demo", demo !== undefined);
}

/** Only the models that the preset allows can be chosen or compared; none means all. */
function offerModels(allowed) {
  const isAllowed = ({ value }) => !allowed.length || !value || allowed.includes(value);
  for (const option of document.querySelectorAll("#model option")) {
    option.hidden = option.disabled = !isAllowed(option);
  }
  for (const box of document.querySelectorAll("#composer [name=compare]")) {
    box.disabled = !isAllowed(box);
    box.checked &&= isAllowed(box);
    box.closest("label").hidden = box.disabled;
  }
  const usual = $("#model [data-usual]");
  if (usual && $("#model").selectedOptions[0]?.disabled) usual.selected = true;
}

/** The tools that the preset allows; undefined means all. */
function showTools(allowed) {
  const menu = $("#tools");
  if (!menu) return;
  for (const box of menu.querySelectorAll("[name=tool]")) {
    const isAllowed = !allowed || allowed.includes(box.value);
    box.closest("label").hidden = !isAllowed;
  }
  slot(menu, "count").textContent = countTools(menu);
}
