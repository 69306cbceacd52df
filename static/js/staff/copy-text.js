// Buttons of the admin that copy the text of another element: data-copies="its id". They
// stay hidden where the browser lets no page copy: over plain HTTP.

for (const button of document.querySelectorAll('button[data-copies]')) {
  button.hidden = !navigator.clipboard;
  button.addEventListener('click', async () => {
    const source = document.getElementById(button.dataset.copies);
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = button.dataset.done;
  });
}
