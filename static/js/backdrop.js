// Closes a dialog by a click beside it.

/** A selection of text that ends beside the dialog makes a click there, too: so the press
 *  counts as well. */
export function closeByBackdrop(dialog) {
  let isPressed = false;
  dialog.addEventListener("pointerdown", (event) => (isPressed = isBeside(dialog, event)));
  dialog.addEventListener("click", (event) => {
    if (isPressed && isBeside(dialog, event)) dialog.close();
  });
}

/** A press on the padding of a dialog has the same target as one beside it. */
function isBeside(dialog, { target, clientX: x, clientY: y }) {
  const { left, right, top, bottom } = dialog.getBoundingClientRect();
  return target === dialog && (x < left || x > right || y < top || y > bottom);
}
