// Buttons that copy the text of another element: data-copies="its id".

import { showCopied, writeText } from "../reading/clipboard.js";

for (const button of document.querySelectorAll("button[data-copies]")) {
  button.hidden = false; // it needs this script
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copies);
    showCopied(button, await writeText(source.value ?? source.textContent));
  });
}
