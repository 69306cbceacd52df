// What "/" and "@" offer in the message box: saved prompts; models, presets and tools.

import { $, announce, cloned, slot } from "../dom.js";
import { complete, matching, replaceText } from "./completions.js";

/** "/" at the start of the box. Anything but a name after it is plain text. */
export function completePrompts(box, { prompts, promptsPage, promptChosen, ...words }) {
  let loaded = null;
  const load = async () => {
    const response = await fetch(prompts, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(String(response.status));
    return (await response.json()).data;
  };
  complete(box, async (text, caret) => {
    const typed = /^\/([\p{L}\p{N}_-]*)$/u.exec(text.slice(0, caret))?.[1];
    if (typed === undefined || text.length > caret) return null;
    loaded ??= load().catch(() => (loaded = null));
    const rows = (await loaded) ?? [];
    if (loaded && !rows.length && !typed) {
      const choose = () => location.assign(promptsPage);
      const first = { name: words.noPrompts, about: words.writeOne, choose };
      return { label: "promptsLabel", options: [first] };
    }
    const options = rows.map((row) => ({
      name: `/${row.name}`,
      about: row.title || row.text.slice(0, 80),
      choose: () => insert(box, row, promptChosen),
    }));
    return { label: "promptsLabel", options: matching(options, `/${typed}`) };
  });
}

async function insert(box, row, chosen) {
  const text = row.variables.length ? await askVariables(row) : row.text;
  if (text !== null) {
    replaceText(box, 0, box.value.length, text);
    announce(chosen);
  }
  box.focus({ preventScroll: true });
}

/** The prompt's text with its variables filled in; null if that was cancelled. */
function askVariables(row) {
  const dialog = $("#dialog");
  const form = cloned("variables");
  slot(form, "title").textContent = row.title || `/${row.name}`;
  const fields = row.variables.map((name, number) => fieldFor(name, number));
  slot(form, "fields").append(...fields);
  dialog.replaceChildren(form);
  dialog.setAttribute("aria-label", slot(form, "title").textContent);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const done = () => {
      const values = fields.map((field) => slot(field, "value").value);
      resolve(dialog.returnValue === "use" ? filled(row, values) : null);
    };
    dialog.addEventListener("close", done, { once: true });
  });
}

function fieldFor(name, number) {
  const field = cloned("variable");
  const value = slot(field, "value");
  value.id = `variable-${number}`;
  slot(field, "label").htmlFor = value.id;
  slot(field, "label").textContent = name;
  return field;
}

/** As `fill` of conversations/models/saved_prompt.py. */
export function filled({ text, variables }, values) {
  const known = new Map(variables.map((name, number) => [name, values[number]]));
  return text.replace(/\{\{[ \t]*([^{}\n]{1,60}?)[ \t]*\}\}/g, (whole, name) =>
    known.has(name) ? known.get(name) : whole,
  );
}

/** "@" at the start of a word. A model or preset is chosen, and the word removed; a tool is
 *  switched on, and its name written. */
export function completeModels(box, { modelChosen, toolChosen }) {
  complete(box, (text, caret) => {
    const found = /(?:^|\s)@([^\s@]*)$/u.exec(text.slice(0, caret));
    if (!found) return null;
    const start = caret - found[1].length - 1;
    const all = [...presetOptions(), ...modelOptions(), ...toolOptions()];
    const options = all.map((option) => ({
      ...option,
      choose: () => {
        replaceText(box, start, start + found[1].length + 1, option.words ?? "");
        option.choose();
        announce(`${option.words ? toolChosen : modelChosen} ${option.name}`);
      },
    }));
    return { label: "modelsLabel", options: matching(options, found[1]) };
  });
}

function modelOptions() {
  const picker = $("#model");
  const rows = [...(picker?.options ?? [])].filter(({ value, disabled }) => value && !disabled);
  return rows.map((row) => ({
    name: row.textContent.trim(),
    about: row.closest("optgroup")?.label,
    choose: () => {
      picker.value = row.value;
      picker.dispatchEvent(new Event("change", { bubbles: true }));
    },
  }));
}

function toolOptions() {
  const boxes = [...document.querySelectorAll("#tools [name=tool]")];
  return boxes.filter((box) => !box.closest("label").hidden).map((box) => ({
    name: box.value,
    about: $("small", box.closest("label"))?.textContent.trim(),
    words: `${box.value} `,
    choose: () => box.checked || box.click(),
  }));
}

function presetOptions() {
  return [...document.querySelectorAll("#presets input[name=preset]")].map((radio) => ({
    name: $("strong", radio.closest("label")).textContent.trim(),
    about: $("small", radio.closest("label"))?.textContent.trim(),
    choose: () => radio.click(),
  }));
}
