// Files of a new chat that are not sent yet. Drafts name them, and only what a draft names
// stays. Storage can be denied, or full: then a file is there until the page is left.

import { newKey } from "./dom.js";
import { namedFiles } from "./drafts.js";

const DATABASE = "parley";
const FILES = "files"; // by name, which begins with the user
const READING = 5000; // milliseconds, after which a reading that has not ended fails
const NAMING = 3000; // until each tab knows what others have named

/** A name for a file, to be written into a draft before the file is stored. */
export const nameFor = (user) => `${user}:${newKey()}`;

export const storeFile = (name, file) => attempt("readwrite", (files) => files.put(file, name));

/** Undefined where nothing is stored; rejects if the browser fails to read it twice. */
export const storedFile = (name) => read(name).catch(() => read(name));

export const removeFile = (name) => attempt("readwrite", (files) => files.delete(name));

/** Removes the files of a user who signs out. */
export const removeFilesOf = (user) => attempt("readwrite", (files) => files.delete(of(user)));

/** Removes what no draft of any user names: it was sent, or its draft is too old. */
export async function removeUnnamed() {
  const names = await attempt("readonly", (files) => files.getAllKeys());
  if (!names?.length) return;
  await new Promise((resolve) => setTimeout(resolve, NAMING));
  const named = namedFiles();
  for (const name of names) if (!named.has(name)) removeFile(name);
}

const of = (user) => IDBKeyRange.bound(`${user}:`, `${user}:\uffff`);

function read(name) {
  const isLate = new Promise((_, reject) => setTimeout(reject, READING));
  return Promise.race([transact("readonly", (files) => files.get(name)), isLate]);
}

/** As `transact`, but undefined if the browser cannot. */
const attempt = (mode, act) => transact(mode, act).catch(() => undefined);

/** Resolves to what `act` has found when the browser has written all. */
async function transact(mode, act) {
  const database = await opened();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(FILES, mode);
    const request = act(transaction.objectStore(FILES));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = () => reject(transaction.error);
  }).finally(() => database.close());
}

function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(FILES);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
