// Small ways to the page. Nothing here, or anywhere else, sets HTML from a string.

export const $ = (selector, root = document) => root.querySelector(selector);

/** The part of a rendered template that `data-slot` names. */
export const slot = (root, name) => root.querySelector(`[data-slot="${name}"]`);

/** A fresh copy of what `<template id="name-template">` holds. */
export function cloned(name) {
  return $(`#${name}-template`).content.firstElementChild.cloneNode(true);
}

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

export function notice(text, kind = "is-error") {
  const words = element("span", { textContent: text });
  const made = element("p", { className: `notice ${kind}` }, icon("alert"), words);
  made.setAttribute("role", "alert");
  return made;
}

/** An element of a page of ours, fetched. Throws where the page is not to be had. */
export async function fetched(url, selector) {
  const response = await fetch(url, { headers: { Accept: "text/html" } });
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  if (isSignIn(response)) {
    signIn();
    throw new Error("signed out");
  }
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return document.adoptNode(selector ? page.querySelector(selector) : page.body);
}

/** Whether the session has ended, by a page that needs one; then it goes to the sign-in. */
export async function checkSession(url) {
  const asked = { headers: { Accept: "text/html" } };
  const response = await fetch(url, asked).catch(() => null);
  if (!response || !isSignIn(response)) return false;
  signIn();
  return true;
}

function isSignIn({ redirected, url }) {
  return redirected && new URL(url).pathname === "/login/";
}

/** The server redirects there, and back here after it. */
function signIn() {
  location.assign(location.pathname + location.search); // with a hash nothing is loaded
}

/** Bring the keyboard to what is no control, so that Tab goes on from there. */
export function focusOn(node) {
  node.tabIndex = -1;
  node.focus({ preventScroll: true });
}

export function say(text) {
  $("#announcer").textContent = text;
}

/** Random enough to name a message; `crypto.randomUUID` exists on https only. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
