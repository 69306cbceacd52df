// What a new chat is to be, beside its first text: stored and restored with its draft. A
// text that was meant for a temporary chat must not be sent without that.

const NAMES = ["temporary", "preset", "model", "effort", "instructions"];

/** By name, as the form would send them. */
export function choicesOf(form) {
  return Object.fromEntries(fieldsOf(form).filter(isSent).map(({ name, value }) => [name, value]));
}

/** Leaves out what the page no longer offers. */
export function restoreChoices(form, choices) {
  for (const field of fieldsOf(form)) {
    const value = choices[field.name] ?? "";
    if (field.type === "checkbox") field.checked = field.value === value;
    else if (field.type === "radio") field.checked ||= field.value === value;
    else if (!field.options || offers(field, value)) field.value = value;
    const details = field.closest("details.new-options");
    if (details && value) details.open = true;
  }
}

/** The presets stand outside of the form. */
function fieldsOf(form) {
  const named = NAMES.flatMap((name) => [...document.querySelectorAll(`[name="${name}"]`)]);
  return named.filter((field) => field.form === form);
}

const isSent = ({ type, checked }) => !["checkbox", "radio"].includes(type) || checked;
const offers = ({ options }, value) => [...options].some((option) => option.value === value);
