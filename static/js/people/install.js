// Installs the service worker, and removes it at sign-out.

import { forgetOnSignOut, leaveWithUser } from "./sign-out.js";

export function installApp(user) {
  leaveWithUser(user);
  forgetOnSignOut(user);
  document.addEventListener("submit", ({ target }) => {
    if ("signOut" in target.dataset) uninstall();
  });
  // Browsers have service workers on https pages and on this machine only.
  const options = { updateViaCache: "none" };
  navigator.serviceWorker?.register("/sw.js", options).catch(() => {});
}

async function uninstall() {
  const found = (await navigator.serviceWorker?.getRegistrations()) ?? [];
  for (const registration of found) registration.unregister();
  for (const name of (await globalThis.caches?.keys()) ?? []) {
    if (name.startsWith("parley-")) caches.delete(name);
  }
}
