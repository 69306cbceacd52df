// Hides a page whose session has ended while a form in it has text that is not saved.

const GIVEN_BACK = "form[data-unsent]"; // has what another page has not sent
const NOTICE = "signed-out"; // id of the template with the notice

const styles = new Map(); // of what is hidden, by element
let isEdited = false;
let notice = null;
let title = "";

/** Notes whether the reader edits a form that is sent by its button. */
export function watchForms() {
  isEdited = document.querySelector(GIVEN_BACK) !== null;
  for (const type of ["input", "change"]) {
    document.addEventListener(type, ({ target }) => {
      // Not properties, which may be fields of these names in forms of the admin.
      const isSaved = target.form?.getAttribute("method")?.toLowerCase() === "post";
      isEdited ||= Boolean(isSaved) && !target.form.matches("#composer"); // which stores it
    });
  }
}

/** Whether the page is covered: not without an edited form, or without the notice. */
export function coverEdited() {
  const template = document.getElementById(NOTICE);
  if (notice || !isEdited || !template) return notice !== null;
  for (const node of document.body.children) {
    styles.set(node, node.getAttribute("style"));
    node.style.setProperty("display", "none", "important");
  }
  notice = template.content.firstElementChild.cloneNode(true);
  notice.addEventListener("cancel", (event) => event.preventDefault());
  document.body.append(notice);
  notice.showModal(); // above a dialog that is open, which would make it inert
  title = document.title;
  document.title = notice.querySelector("h1").textContent;
  return true;
}

/** After a sign-in in another tab: goes on if it was by the same user. */
export async function renewPage(user) {
  // The address of what was not sent may be one that shows no page.
  const url = document.querySelector(GIVEN_BACK) ? "/" : location.href;
  const response = await fetch(url).catch(() => null);
  if (!response?.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (userOf(page) !== user) return;
  renewTokens(page);
  if (notice) uncoverPage();
}

function userOf(page) {
  return page.body.dataset.user ?? page.querySelector('meta[name="user"]')?.content;
}

function uncoverPage() {
  for (const [node, style] of styles) {
    if (style === null) node.removeAttribute("style");
    else node.style.cssText = style; // the attribute itself is refused by the CSP
  }
  styles.clear();
  notice.remove();
  notice = null;
  document.title = title;
}

/** A sign-in gives the browser another CSRF token; forms with the old one are refused. */
function renewTokens(page) {
  const fresh = page.querySelector("[name=csrfmiddlewaretoken]");
  for (const field of document.querySelectorAll("[name=csrfmiddlewaretoken]")) {
    if (fresh) field.value = fresh.value;
  }
}
