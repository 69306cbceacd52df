// Updates a part of the page to a new rendering, in place. A node of both stays on the
// page, so an open menu, the focus and ticked boxes survive.
//
// A node is recognised by its `data-key`, else by its position among those of its name.

const PAGE_ATTRIBUTES = new Set(["open"]); // which the page changes, not the server

export function renew(root, fresh) {
  const focused = document.activeElement;
  const keyed = new Map();
  for (const node of root.querySelectorAll("[data-key]")) keyed.set(node.dataset.key, node);
  renewChildren(root, fresh, keyed);
  // A browser takes the focus from a node that moves.
  const hasLostFocus = focused !== document.activeElement && root.contains(focused);
  if (hasLostFocus) focused.focus({ preventScroll: true });
}

function renewChildren(old, fresh, keyed) {
  let next = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const match = findMatch(wanted, next, keyed);
    if (match) renewNode(match, wanted, keyed);
    if (match && match === next) next = next.nextSibling;
    else insert(old, match ?? wanted, next);
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

function findMatch(wanted, next, keyed) {
  const key = wanted.dataset?.key;
  if (key) {
    const found = keyed.get(key);
    keyed.delete(key);
    return found;
  }
  let node = next;
  while (node && (node.nodeName !== wanted.nodeName || node.dataset?.key)) {
    node = node.nextSibling;
  }
  return node;
}

function renewNode(old, fresh, keyed) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of fresh.attributes) {
    if (PAGE_ATTRIBUTES.has(name) || old.getAttribute(name) === value) continue;
    old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!PAGE_ATTRIBUTES.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  renewChildren(old, fresh, keyed);
}

function insert(parent, node, next) {
  if (parent.moveBefore && parent.isConnected && node.isConnected) {
    parent.moveBefore(node, next);
  } else parent.insertBefore(node, next);
}
