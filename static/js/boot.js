// What cannot wait for the page's modules, which run once the page is read: a
// hidden sidebar stays hidden from the first picture on, and Enter sends the message.

try {
  const isHidden = localStorage.getItem("parley:sidebar") === "hidden";
  document.documentElement.classList.toggle("has-no-sidebar", isHidden);
} catch {
  // No storage available: the sidebar shows.
}

document.addEventListener("keydown", (event) => {
  const { target, key, shiftKey, isComposing, keyCode } = event;
  if (target.id !== "text" || "scripted" in target.form.dataset) return;
  if (key !== "Enter" || shiftKey || isComposing || keyCode === 229) return;
  if (matchMedia("(pointer: coarse)").matches) return;
  event.preventDefault();
  if (target.value.trim()) target.form.requestSubmit(document.getElementById("send"));
});
