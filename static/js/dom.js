// Helpers for DOM elements and requests. No module sets HTML from a string.

import { coverEdited } from "./people/cover.js";

export const $ = (selector, root = document) => root.querySelector(selector);

/** The part of a rendered template that `data-slot` names. */
export const slot = (root, name) => root.querySelector(`[data-slot="${name}"]`);

/** A fresh copy of what `<template id="name-template">` holds. */
export function cloned(name) {
  return $(`#${name}-template`).content.firstElementChild.cloneNode(true);
}

/** `root`, if it matches, and what matches in it. */
export function matching(root, selector) {
  const found = [...root.querySelectorAll(selector)];
  return root.matches(selector) ? [root, ...found] : found;
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

/** The session has ended: the page is being left, or is covered. */
export class SignedOut extends Error {}

const unanswered = (error) => Promise.reject(Object.assign(error, { status: 0 }));

/** Fetches a page of this server and returns an element of it. Throws if that fails, with
 *  the answer's `status`: 0 without an answer. */
export async function fetched(url, selector) {
  const response = await fetch(url, { headers: { Accept: "text/html" } }).catch(unanswered);
  const { ok, status } = response;
  if (!ok) throw Object.assign(new Error(`${url} answered ${status}`), { status });
  if (isSignIn(response)) {
    leave();
    throw new SignedOut();
  }
  const text = await response.text().catch(unanswered);
  const page = new DOMParser().parseFromString(text, "text/html");
  return document.adoptNode(selector ? page.querySelector(selector) : page.body);
}

/** Opens a page that could not be shown in place; not where the session has ended. */
export function openInstead(url, error) {
  if (!(error instanceof SignedOut)) location.assign(url);
}

/** The problem that a refused page states in its form; "" without one. */
export async function problemIn(response) {
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return page.querySelector("#composer-errors .notice")?.textContent.trim() ?? "";
}

/** Whether the session has ended, tested with a page that needs one; if so, opens the sign-in. */
export async function checkSession(url, beforeSignIn = () => {}) {
  if (!(await isSessionOver(url))) return false;
  beforeSignIn();
  signIn();
  return true;
}

export async function isSessionOver(url) {
  const options = { headers: { Accept: "text/html" } };
  const response = await fetch(url, options).catch(() => null);
  return Boolean(response && isSignIn(response));
}

const REQUIRED_PAGES = ["/login/", "/terms/"]; // what a session without access is led to

export function isSignIn({ redirected, url }) {
  return redirected && REQUIRED_PAGES.includes(new URL(url).pathname);
}

/** Opens the sign-in, unless what was typed is not saved: then the page is covered. */
export function leave() {
  if (!coverEdited()) signIn();
}

/** Loads the page again; the server redirects to the sign-in, or the terms, and back. */
export function signIn() {
  location.assign(location.pathname + location.search); // with a hash nothing is loaded
}

/** Focuses an element that is not a control, so that Tab continues from there. */
export function focusOn(node) {
  node.tabIndex = -1;
  node.focus({ preventScroll: true });
}

export function announce(text) {
  $("#announcer").textContent = text;
}

/** A random id for a message; `crypto.randomUUID` exists on https only. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Puts a text before that of the message box, where it may be already. */
export function prepend(box, text) {
  const { value } = box;
  if (`${value}\n\n`.startsWith(`${text}\n\n`)) return;
  box.value = [text, value].filter(Boolean).join("\n\n");
  box.dispatchEvent(new Event("input", { bubbles: true })); // which stores it as a draft
}
