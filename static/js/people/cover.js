// Hides a page whose user has signed out while a form in it has text that is not saved.

const NOTICE = "signed-out"; // id of the template with the notice

const styles = new Map(); // of what is hidden, by element
let notice = null;
let title = "";

/** Returns a function: whether somebody has edited a form that is sent by its button. */
export function watchForms() {
  let edited = false;
  document.addEventListener("input", ({ target }) => {
    // Not properties, which may be fields of these names in forms of the admin.
    const isSaved = target.form?.getAttribute("method")?.toLowerCase() === "post";
    edited ||= isSaved && !target.form.matches("#composer"); // which stores its draft
  });
  return () => edited;
}

export const isCovered = () => notice !== null;

/** False on pages without the notice. */
export function coverPage() {
  const template = document.getElementById(NOTICE);
  if (isCovered() || !template) return isCovered();
  for (const node of document.body.children) {
    styles.set(node, node.getAttribute("style"));
    node.style.setProperty("display", "none", "important");
  }
  notice = template.content.firstElementChild.cloneNode(true);
  document.body.append(notice);
  title = document.title;
  document.title = notice.querySelector("h1").textContent;
  return true;
}

/** After a new sign-in of the same user. */
export async function uncoverPage() {
  await renewTokens();
  for (const [node, style] of styles) {
    if (style === null) node.removeAttribute("style");
    else node.style.cssText = style; // the attribute itself is refused by the CSP
  }
  styles.clear();
  notice?.remove();
  notice = null;
  document.title = title;
}

/** A sign-in gives the browser another CSRF token; forms with the old one are refused. */
async function renewTokens() {
  const response = await fetch(location.href).catch(() => null);
  if (!response?.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = page.querySelector("[name=csrfmiddlewaretoken]");
  for (const field of document.querySelectorAll("[name=csrfmiddlewaretoken]")) {
    if (fresh) field.value = fresh.value;
  }
}
