// Buttons above a block of code: wrap its lines, save it as a file.

import { cloned } from "../dom.js";
import { save } from "./save.js";

/** Languages whose files do not end in the language's own name. */
const ENDINGS = {
  bash: "sh", "c#": "cs", "c++": "cpp", csharp: "cs", dockerfile: "dockerfile",
  golang: "go", javascript: "js", jsx: "jsx", kotlin: "kt", latex: "tex",
  makefile: "mk", markdown: "md", mermaid: "mmd", plaintext: "txt", powershell: "ps1",
  python: "py", ruby: "rb", rust: "rs", shell: "sh", text: "txt", typescript: "ts",
  yaml: "yml", zsh: "sh",
};

export function addCodeTools(root) {
  for (const head of root.querySelectorAll(".code-head:not([data-tools])")) {
    head.dataset.tools = "";
    head.append(...cloned("code-tools").children);
    head.append(head.querySelector("[data-copy]"));
  }
}

export function onCodeTool(event) {
  const button = event.target.closest("[data-code]");
  if (!button) return;
  const block = button.closest(".code");
  if (button.dataset.code === "wrap") {
    const isWrapped = block.classList.toggle("is-wrapped");
    button.setAttribute("aria-pressed", isWrapped);
  } else {
    save(block.querySelector("code").textContent, fileName(block));
  }
}

/** `code-2.py`: the block's place among its page's blocks, and its language. */
export function fileName(block) {
  const language = block.querySelector(".code-head span").textContent.toLowerCase();
  const turn = block.closest(".turn") ?? document;
  const number = [...turn.querySelectorAll(".code")].indexOf(block) + 1;
  return `code-${number}.${endingOf(language)}`;
}

export function endingOf(language) {
  if (Object.hasOwn(ENDINGS, language)) return ENDINGS[language];
  return /^[a-z0-9]{1,10}$/.test(language) ? language : "txt";
}
