// What a new chat is to be, beside its first text: stored and restored with its draft. A
// text that was meant for a temporary chat must not be sent without that.

// The preset stands before the model: it may forbid models.
const NAMES = ["temporary", "preset", "model", "effort", "instructions"];

/** By name, as the form would send them. */
export function choicesOf(form) {
  return Object.fromEntries(fieldsOf(form).filter(isSent).map(({ name, value }) => [name, value]));
}

/** Leaves out what the page no longer offers, and the names that were `chosen` meanwhile.
 *  Each change takes effect as one of the person's. */
export function restoreChoices(form, choices, chosen = new Set()) {
  for (const field of fieldsOf(form).filter(({ name }) => !chosen.has(name))) {
    const value = choices[field.name] ?? "";
    if (set(field, value)) field.dispatchEvent(new Event("change", { bubbles: true }));
    const details = field.closest("details.new-options");
    if (details && value) details.open = true;
  }
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
function fieldsOf(form) {
  const named = NAMES.flatMap((name) => [...document.querySelectorAll(`[name="${name}"]`)]);
  return named.filter((field) => field.form === form);
}

const isSent = ({ type, checked }) => !["checkbox", "radio"].includes(type) || checked;
const offers = ({ options }, value) =>
  [...options].some((option) => option.value === value && !option.disabled);
