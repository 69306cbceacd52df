// Selecting conversations in the library: all of the page, or a range by Shift+click.

const form = document.getElementById("bulk");
const boxes = [...form.querySelectorAll('input[name="ids"]')];
const all = document.getElementById("select-all");
let last = -1;

all?.addEventListener("change", () => {
  for (const box of boxes) box.checked = all.checked;
});
form.addEventListener("change", () => showWhetherAll());
addEventListener("pageshow", () => showWhetherAll()); // browsers restore the boxes

form.addEventListener("click", (event) => {
  const at = boxes.indexOf(event.target);
  if (at < 0) return;
  if (event.shiftKey && last >= 0) {
    const [from, to] = [Math.min(at, last), Math.max(at, last)];
    for (const box of boxes.slice(from, to + 1)) box.checked = event.target.checked;
  }
  last = at;
  showWhetherAll();
});

/** Browsers send the form for Enter in a box that is ticked, too. */
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("input[type=checkbox]")) event.preventDefault();
});

function showWhetherAll() {
  if (!all) return;
  const count = boxes.filter(({ checked }) => checked).length;
  all.checked = count === boxes.length;
  all.indeterminate = count > 0 && count < boxes.length;
}
