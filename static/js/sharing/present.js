// Names of the other people who have the conversation open, above it.

/** `names` may be empty. */
export function showPresent(names) {
  const present = document.querySelector("#present");
  if (!present) return;
  present.querySelector("[data-slot=names]").textContent = names.join(", ");
  present.hidden = names.length === 0;
}
