// Sends a message for which Enter is pressed before the page's modules have loaded: the
// form works without them. No module, as those wait until the page is read.

document.addEventListener("keydown", (event) => {
  const { target, key, shiftKey, isComposing, keyCode } = event;
  if (target.id !== "text" || "scripted" in target.form.dataset) return;
  if (key !== "Enter" || shiftKey || isComposing || keyCode === 229) return;
  if (matchMedia("(pointer: coarse)").matches) return;
  event.preventDefault();
  if (target.value.trim()) target.form.requestSubmit(document.getElementById("send"));
});
