// Files of a new chat that are not sent yet: the browser stores them until they are. A draft
// names its files, and only what a draft names stays. Storage can be denied, or full: then
// a file is there until the page is left.

import { newKey } from "./dom.js";
import { local } from "./stored.js";

const DATABASE = "parley";
const FILES = "files"; // by name, which begins with the user

/** A name for a file, to be written into a draft before the file is stored. */
export const nameFor = (user) => `${user}:${newKey()}`;

export const storeFile = (name, file) => attempt("readwrite", (files) => files.put(file, name));

/** Undefined where nothing is stored. */
export const storedFile = (name) => attempt("readonly", (files) => files.get(name));

export const removeFile = (name) => attempt("readwrite", (files) => files.delete(name));

/** Removes the files of a user who signs out. */
export const removeFilesOf = (user) => attempt("readwrite", (files) => files.delete(of(user)));

export const hasFiles = (user) => draftsOf(user).includes('"stored":');

/** Removes what no draft names any more: it was sent, or its draft is too old. */
export async function removeUnnamed(user) {
  const names = (await attempt("readonly", (files) => files.getAllKeys(of(user)))) ?? [];
  const drafts = draftsOf(user);
  for (const name of names) if (!drafts.includes(name)) removeFile(name);
}

function draftsOf(user) {
  const names = local.names.filter((name) => name.startsWith(`parley:draft:${user}:`));
  return names.map((name) => local.get(name)).join();
}

const of = (user) => IDBKeyRange.bound(`${user}:`, `${user}:\uffff`);

/** Resolves to what `act` has found when the browser has written all, or to undefined. */
async function attempt(mode, act) {
  try {
    const database = await opened();
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(FILES, mode);
      const request = act(transaction.objectStore(FILES));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error);
    }).finally(() => database.close());
  } catch {
    return undefined;
  }
}

function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(FILES);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
