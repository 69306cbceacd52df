// For a browser that is signed out: removes the service worker and what it has stored.

addEventListener("install", () => self.skipWaiting());
addEventListener("activate", (event) => event.waitUntil(remove()));

async function remove() {
  for (const name of await caches.keys()) {
    if (name.startsWith("parley-")) await caches.delete(name);
  }
  await self.registration.unregister();
}
