// Shows the offline page where the server cannot be reached. The server puts SHELL, with
// version, page and files, before this text. Nothing but the shell is ever stored.

const CACHE = `parley-shell-${SHELL.version}`;
const NOT_OURS = /^\/(?:api|v1|ws|admin|login|logout|static|media)(?:\/|$)/;

addEventListener("install", (event) => event.waitUntil(store()));
addEventListener("activate", (event) => event.waitUntil(takeOver()));
addEventListener("notificationclick", (event) => event.waitUntil(showChat(event.notification)));
addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (url.origin !== location.origin) return;
  if (request.mode === "navigate") {
    if (isPage(request, url)) event.respondWith(openPage(event));
  } else if (SHELL.files.includes(url.pathname)) {
    event.respondWith(fetch(request).catch(() => stored(url.pathname)));
  }
});

/** Without cookies: the page is the same for everybody. */
async function store() {
  const cache = await caches.open(CACHE);
  const options = { credentials: "omit", cache: "reload" };
  const wanted = [SHELL.page, ...SHELL.files].map((url) => new Request(url, options));
  await cache.addAll(wanted);
  await self.skipWaiting();
}

async function takeOver() {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith("parley-") && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.registration.navigationPreload?.enable();
  await self.clients.claim();
}

function isPage(request, { pathname }) {
  if (NOT_OURS.test(pathname)) return false;
  return request.method === "GET" || (request.method === "POST" && pathname === "/");
}

async function openPage(event) {
  try {
    return (await event.preloadResponse) ?? (await fetch(event.request));
  } catch {
    return stored(SHELL.page);
  }
}

async function stored(url) {
  return (await (await caches.open(CACHE)).match(url)) ?? Response.error();
}

/** The tag of a notification is the path of its chat. */
async function showChat(notification) {
  notification.close();
  const pages = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const page = pages.find(({ url }) => new URL(url).pathname === notification.tag);
  await (page ? page.focus() : clients.openWindow(notification.tag));
}
