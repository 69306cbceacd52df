// As much of a page as the modules need that build and change elements.

class Text {
  constructor(data) {
    this.data = String(data);
  }
  get textContent() {
    return this.data;
  }
  appendData(more) {
    this.data += more;
  }
  cloneNode() {
    return new Text(this.data);
  }
}

const PARTS =
  /:(not|is)\(([^)]*)\)|([\w-]+)|\.([\w-]+)|#([\w-]+)|\[([\w-]+)(?:="?([^"\]]*)"?)?\]|:(\w+)/g;
const COMMA = /,(?![^(]*\))/;
const SPACE = /\s+(?![^(]*\))/;

/** The conditions of a compound selector. */
function conditions(compound) {
  const parts = [...compound.matchAll(PARTS)];
  return parts.map(([, kind, inner, tag, name, id, attribute, value, pseudo]) => (node) => {
    if (kind) return isOneOf(node, inner) === (kind === "is");
    if (tag) return node.localName === tag;
    if (name) return node.classList.contains(name);
    if (id) return node.id === id;
    if (pseudo) return Boolean(node[pseudo]);
    return value === undefined ? node.hasAttribute(attribute) : node.getAttribute(attribute) === value;
  });
}

const fits = (node, compound) => conditions(compound).every((isMet) => isMet(node));

function isOneOf(node, selector) {
  return selector.split(COMMA).some((each) => {
    const [last, ...outer] = each.trim().split(SPACE).filter((part) => part !== ">").reverse();
    let at = node.parentElement;
    return fits(node, last) && outer.every((compound) => {
      while (at && !fits(at, compound)) at = at.parentElement;
      return at !== null;
    });
  });
}

const attributeOf = (name) => `data-${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

export class Element extends EventTarget {
  #classes = new Set();
  attributes = {};
  childNodes = [];
  parentElement = null;
  hidden = false;
  style = { setProperty() {} };
  id = "";

  constructor(localName, attributes = {}, ...children) {
    super();
    this.localName = localName;
    for (const [name, value] of Object.entries(attributes)) this.setAttribute(name, value);
    this.append(...children);
    this.dataset = new Proxy({}, {
      get: (_, name) => this.getAttribute(attributeOf(name)) ?? undefined,
      set: (_, name, value) => this.setAttribute(attributeOf(name), value) ?? true,
      has: (_, name) => this.hasAttribute(attributeOf(name)),
      deleteProperty: (_, name) => delete this.attributes[attributeOf(name)],
    });
    const classes = this.#classes;
    this.classList = {
      add: (...names) => names.forEach((name) => classes.add(name)),
      remove: (...names) => names.forEach((name) => classes.delete(name)),
      contains: (name) => classes.has(name),
      toggle: (name, isOn) => (isOn ? classes.add(name) : classes.delete(name)),
    };
  }
  get tagName() {
    return this.localName.toUpperCase();
  }
  get className() {
    return [...this.#classes].join(" ");
  }
  set className(names) {
    this.#classes.clear();
    for (const name of names.split(" ").filter(Boolean)) this.#classes.add(name);
  }
  setAttribute(name, value) {
    if (name === "class") this.className = value;
    else if (name === "id") this.id = value;
    else this.attributes[name] = String(value);
  }
  getAttribute(name) {
    return this.attributes[name] ?? null;
  }
  hasAttribute(name) {
    return name in this.attributes;
  }
  get children() {
    return this.childNodes.filter((each) => each instanceof Element);
  }
  get firstElementChild() {
    return this.children[0] ?? null;
  }
  get lastElementChild() {
    return this.children.at(-1) ?? null;
  }
  get lastChild() {
    return this.childNodes.at(-1) ?? null;
  }
  get childElementCount() {
    return this.children.length;
  }
  get isConnected() {
    return this === document.body || (this.parentElement?.isConnected ?? false);
  }
  get textContent() {
    return this.childNodes.map((each) => each.textContent).join("");
  }
  set textContent(text) {
    this.replaceChildren(...(text === "" ? [] : [text]));
  }
  #insert(index, nodes) {
    const made = nodes.map((each) => (typeof each === "object" ? each : new Text(each)));
    for (const each of made) {
      each.remove?.();
      each.parentElement = this;
    }
    this.childNodes.splice(index, 0, ...made);
  }
  append(...nodes) {
    this.#insert(this.childNodes.length, nodes);
  }
  prepend(...nodes) {
    this.#insert(0, nodes);
  }
  before(...nodes) {
    this.parentElement.#insert(this.parentElement.childNodes.indexOf(this), nodes);
  }
  after(...nodes) {
    this.parentElement.#insert(this.parentElement.childNodes.indexOf(this) + 1, nodes);
  }
  replaceWith(...nodes) {
    this.before(...nodes);
    this.remove();
  }
  replaceChildren(...nodes) {
    for (const each of [...this.childNodes]) each.parentElement = null;
    this.childNodes = [];
    this.append(...nodes);
  }
  remove() {
    const siblings = this.parentElement?.childNodes;
    if (siblings?.includes(this)) siblings.splice(siblings.indexOf(this), 1);
    this.parentElement = null;
  }
  cloneNode() {
    const copy = new Element(this.localName, { ...this.attributes, class: this.className });
    copy.append(...this.childNodes.map((each) => each.cloneNode()));
    return copy;
  }
  contains(node) {
    return node === this || this.children.some((each) => each.contains(node));
  }
  matches(selector) {
    return isOneOf(this, selector);
  }
  closest(selector) {
    return this.matches(selector) ? this : (this.parentElement?.closest(selector) ?? null);
  }
  querySelectorAll(selector) {
    return this.children.flatMap((each) => [
      ...(each.matches(selector) ? [each] : []),
      ...each.querySelectorAll(selector),
    ]);
  }
  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }
  focus() {
    document.activeElement = this;
  }
}

/** An element with these `data-slot`s, in order. */
export function slotted(tag, attributes, ...names) {
  const slots = names.map((name) => new Element("span", { "data-slot": name }));
  return new Element(tag, attributes, ...slots);
}

/** Adds `<template id="name-template">` with this element. */
export function addTemplate(name, element) {
  const made = new Element("template", { id: `${name}-template` });
  made.content = new Element("div", {}, element);
  document.body.append(made);
}

/** An empty page, as the global `document`. */
export function openPage() {
  const page = new EventTarget();
  page.body = new Element("body");
  page.activeElement = page.body;
  page.documentElement = new Element("html");
  page.head = new Element("head");
  page.querySelector = (selector) => page.body.querySelector(selector);
  page.querySelectorAll = (selector) => page.body.querySelectorAll(selector);
  page.getElementById = (id) => page.querySelector(`#${id}`);
  page.createElement = (tag) => new Element(tag);
  page.createElementNS = (_, tag) => new Element(tag);
  page.createTextNode = (data) => new Text(data);
  page.adoptNode = (node) => node;
  const navigator = { onLine: true, language: "en" };
  Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true });
  globalThis.document = page;
  globalThis.location = new URL("http://chat.example/chat/1/");
  return page;
}
