// What a new chat is to be, beside its first text: stored and restored with its draft. A
// text that was meant for a temporary chat must not be sent without that.

// The preset stands before the model: it may forbid models.
const NAMES = ["temporary", "preset", "model", "effort", "instructions"];
const BOXES = ["tool", "compare"]; // boxes of one name, each with a value of its own

/** By name, as the form would send them; of boxes whether each is ticked, by its value. */
export function choicesOf(form) {
  const single = fieldsOf(form, NAMES).filter(isSent).map(({ name, value }) => [name, value]);
  const boxes = BOXES.map((name) => [name, ticksOf(fieldsOf(form, [name]))]);
  return Object.fromEntries([...single, ...boxes]);
}

const ticksOf = (boxes) => Object.fromEntries(boxes.map(({ value, checked }) => [value, checked]));

/** Leaves out what the page no longer offers, and the names that were `chosen` meanwhile.
 *  Each change takes effect as one of the person's. */
export function restoreChoices(form, choices, chosen = new Set()) {
  const isOpen = ({ name }) => !chosen.has(name);
  for (const field of fieldsOf(form, NAMES).filter(isOpen)) {
    const value = choices[field.name] ?? "";
    if (set(field, value)) field.dispatchEvent(new Event("change", { bubbles: true }));
    const details = field.closest("details.new-options");
    if (details && value) details.open = true;
  }
  for (const box of fieldsOf(form, BOXES).filter(isOpen)) restoreBox(box, choices[box.name] ?? {});
}

/** One that is new to the page stays as the page shows it. */
function restoreBox(box, { [box.value]: isTicked = box.checked }) {
  if (box.disabled || box.checked === isTicked) return;
  box.checked = isTicked;
  box.dispatchEvent(new Event("change", { bubbles: true }));
}

/** Whether that has changed the field. */
function set(field, value) {
  const { checked, value: before } = field;
  if (field.type === "checkbox") field.checked = field.value === value;
  else if (field.type === "radio") field.checked ||= field.value === value;
  else if (!field.options || offers(field, value)) field.value = value;
  return field.checked !== checked || field.value !== before;
}

/** The presets stand outside of the form. */
function fieldsOf(form, names) {
  const named = names.flatMap((name) => [...document.querySelectorAll(`[name="${name}"]`)]);
  return named.filter((field) => field.form === form);
}

const isSent = ({ type, checked }) => !["checkbox", "radio"].includes(type) || checked;
const offers = ({ options }, value) =>
  [...options].some((option) => option.value === value && !option.disabled);
