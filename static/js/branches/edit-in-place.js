// Edits a message where it stands, with the form of the page that its link leads to.

import { $, checkSession, fetched, openInstead } from "../dom.js";
import { replaceText } from "../people/completions.js";
import { adviceFor, sayNotSent } from "../people/posting.js";

const LINK = ".turn-edit";
const FORM = "form.edit-message";

/** `onSaved` is called, and awaited, once the server has the new version. */
export function editInPlace(onSaved) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest(LINK);
    if (!link || !isPlain(event)) return;
    event.preventDefault();
    open(link, onSaved);
  });
}

async function open(link, onSaved) {
  const message = link.closest(".asked");
  if (link.ariaDisabled || $(FORM, message)) return;
  const back = document.activeElement;
  link.ariaDisabled = "true";
  try {
    const form = await fetched(link.href, `main ${FORM}`);
    if (!message.isConnected) throw new Error("the turn was drawn anew");
    show(message, form, { back: back === document.body ? link : back, onSaved });
  } catch (error) {
    openInstead(link.href, error);
  }
  link.ariaDisabled = null;
}

function show(message, form, { back, onSaved }) {
  const title = $("h1", form);
  form.setAttribute("aria-label", title.textContent);
  title.remove();
  const close = () => {
    form.remove();
    message.classList.remove("is-edited");
    back.focus({ preventScroll: true });
  };
  form.addEventListener("keydown", (event) => onKey(event, close));
  form.addEventListener("click", (event) => {
    if (!event.target.closest("[data-cancel]")) return;
    event.preventDefault();
    close();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    save(message, form, { back, onSaved });
  });
  $(FORM, message)?.remove();
  message.append(form);
  message.classList.add("is-edited");
  const text = $("textarea", form);
  text.focus({ preventScroll: true });
  text.setSelectionRange(text.value.length, text.value.length);
  form.scrollIntoView({ block: "nearest", behavior: "instant" });
}

/** Esc closes the editor and no more; Enter sends, where it sends in the message box. */
function onKey(event, close) {
  if (event.isComposing || event.keyCode === 229) return;
  if (event.key === "Escape") {
    event.preventDefault();
    close();
  } else if (event.key === "Enter" && event.target.matches("textarea")) {
    const isPhone = matchMedia("(pointer: coarse)").matches;
    const hasModifier = event.ctrlKey || event.metaKey;
    if (event.shiftKey || (isPhone && !hasModifier)) return;
    event.preventDefault();
    event.currentTarget.requestSubmit();
  }
}

/** Shows what the server finds wrong in the form, which stays if the request fails. */
async function save(message, form, { back, onSaved }) {
  const button = $("button", form);
  const text = $("textarea", form);
  if (button.disabled) return;
  if (!text.value.trim() && !$("[name=keep]:checked", form)) return text.focus();
  button.disabled = true;
  try {
    const options = { method: "POST", body: new FormData(form), redirect: "manual" };
    const response = await fetch(form.action, options);
    const isSaved = response.type === "opaqueredirect"; // or it leads to the sign-in
    if (isSaved || response.status === 403) {
      if (await checkSession($("#list").dataset.url, () => storeText(text.value))) return;
    }
    if (isSaved) {
      form.remove();
      message.classList.remove("is-edited");
      await onSaved().catch(() => location.reload()); // the server has the new version
    } else {
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = page.querySelector(`main ${FORM}`);
      if (!fresh) return sayNotSent(form, adviceFor(response.status));
      show(message, document.adoptNode(fresh), { back, onSaved });
    }
  } catch {
    sayNotSent(form);
  }
}

/** As the draft of the message box, which the user finds after signing in again. */
function storeText(text) {
  const box = $("#text");
  if (!box.value) replaceText(box, 0, 0, text);
}

const isPlain = ({ ctrlKey, metaKey, shiftKey, altKey, button }) =>
  !(ctrlKey || metaKey || shiftKey || altKey || button);
