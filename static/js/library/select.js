// Selecting conversations in the library: Shift+click selects a range.

const form = document.getElementById("bulk");
const boxes = [...form.querySelectorAll('input[name="ids"]')];
let last = -1;

form.addEventListener("click", (event) => {
  const at = boxes.indexOf(event.target);
  if (at < 0) return;
  if (event.shiftKey && last >= 0) {
    const [from, to] = [Math.min(at, last), Math.max(at, last)];
    for (const box of boxes.slice(from, to + 1)) box.checked = event.target.checked;
  }
  last = at;
});
