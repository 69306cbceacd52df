// Files of a message.
//
// In a conversation each file is uploaded at once, and the message refers to its id. A new
// one is created by a form with its files, which the browser stores until then.

import { $, announce, cloned, icon, isSignIn, slot } from "./dom.js";
import { fitPicture, isPicture } from "./pictures.js";
import { nameFor, removeFile, storeFile, storedFile } from "./stored-files.js";
import { local } from "./stored.js";
import { gettext, interpolate, ngettext, shortNumber } from "./texts.js";

const OLDER = `parley:files:${document.body.dataset.user}:`; // one list for all tabs of a chat
const THUMBNAIL = 96; // pixels
const LONG_TEXT = 8_000; // characters of a pasted text that becomes a file
const STALLED = 60_000; // milliseconds without progress
const UNANSWERED = 600_000; // after the last byte: the server scans and copies

const UNITS = [
  [1e9, gettext("%(size)s GB")],
  [1e6, gettext("%(size)s MB")],
  [1e3, gettext("%(size)s kB")],
];

/** `12 kB`, `3.4 MB`, as of conversations/turns/file_kinds.py. */
export function sizeInWords(size) {
  for (const [factor, words] of UNITS) {
    if (size >= factor) return interpolate(words, { size: shortNumber(size / factor) });
  }
  return bytesInWords(size);
}

const bytesInWords = (size) =>
  interpolate(ngettext("%(size)s byte", "%(size)s bytes", size), { size });

/** In bytes if their words would be the same. */
export function inWords({ size, limit }) {
  const isClose = sizeInWords(size) === sizeInWords(limit);
  const words = isClose ? bytesInWords : sizeInWords;
  return { size: words(size), limit: words(limit) };
}

export class Files {
  #entries = [];
  #list = $("#attached");
  #form = $("#composer");
  #input = $("#file");
  #note = $("#waits-for-files");
  #url;
  #isNew;
  #draft;
  #isInDraft = false; // what the list shows is stored in the draft
  #complain;
  #waiting = null; // what to do when all are there
  #pastes = 0; // texts that became files
  #isPlainPaste = false; // Shift is held

  /** `url` receives uploads, which `draft` stores; without it the form sends the files. */
  constructor({ conversation, url, draft, complain }) {
    this.#url = url;
    this.#isNew = !conversation;
    this.#draft = draft;
    this.#complain = complain;
    this.#input.addEventListener("change", () => this.#picked());
    const noteShift = ({ shiftKey }) => (this.#isPlainPaste = shiftKey);
    for (const key of ["keydown", "keyup"]) this.#form.addEventListener(key, noteShift);
    this.#form.addEventListener("paste", (event) => this.#pasted(event));
    slot(this.#note, "cancel").addEventListener("click", () => this.#cancel());
    this.#dropping();
    this.restore([...takeOlder(conversation), ...draft.files]);
  }

  get isEmpty() {
    return this.#entries.length === 0;
  }

  /** Why the message cannot be sent; undefined if it can. */
  get problem() {
    return this.#entries.find(({ problem }) => problem)?.problem;
  }

  get isBusy() {
    return this.#entries.some(({ request, isFitting, isAwaited }) => request || isFitting || isAwaited);
  }

  /** Says that the message waits, until `act` is called or the message changes. */
  whenReady(act) {
    this.#waiting = act;
    this.#note.hidden = false;
    announce(slot(this.#note, "words").textContent);
  }

  stopWaiting() {
    this.#waiting = null;
    this.#note.hidden = true;
  }

  /** Returns the parts of the message and removes its files from the list. */
  take() {
    const parts = this.#entries.map(({ known }) => partOf(known));
    for (const entry of this.#entries) entry.item.remove();
    this.#entries = [];
    this.#changed();
    return parts;
  }

  /** Restores the parts of a refused message. */
  giveBack(parts) {
    for (const part of parts) {
      const name = part.filename ?? gettext("Picture");
      const content_type = part.type === "input_image" ? "image/" : "";
      this.#show({ known: { id: part.file_id, name, content_type, size: null } });
    }
    this.#changed();
  }

  /** Resolves to the URL of the resulting page. */
  post(submitter) {
    const data = new FormData(this.#form, submitter);
    data.delete("file");
    for (const { file } of this.#entries) data.append("file", file, file.name);
    const entries = [...this.#entries];
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open("POST", this.#form.action);
      request.responseType = "document";
      const lost = gettext("The files could not be sent. Try again.");
      const watch = watchProgress(request, () => reject(new Error(lost)));
      request.upload.onprogress = (event) => {
        watch();
        entries.forEach((entry) => progress(entry, event));
      };
      request.onerror = () => reject(new Error(lost));
      request.onload = () => {
        entries.forEach(({ item }) => (slot(item, "progress").hidden = true));
        if (isRefusedSession(request)) reject(new Error(gettext("You are signed out. Sign in in another tab, then send again: your message and its files are still here.")));
        else if (request.status < 400) resolve(request.responseURL);
        else reject(new Error(problemOf(request.responseXML)));
      };
      request.send(data);
    });
  }

  add(files) {
    this.stopWaiting(); // the message is another one now
    const added = [];
    for (const file of files) {
      const problem = this.#problem(file);
      if (problem) this.#complain(problem);
      else added.push(this.#show({ file, stored: this.#isNew ? this.#nameStored() : "" }));
    }
    for (const entry of added) isPicture(entry.file) ? this.#fit(entry) : this.#upload(entry);
    this.#changed();
    for (const entry of added) if (!entry.isFitting) this.#storeFileOf(entry);
  }

  #nameStored() {
    return nameFor(document.body.dataset.user);
  }

  async #fit(entry) {
    entry.isFitting = true;
    const file = await fitPicture(entry.file);
    entry.isFitting = false;
    if (!this.#entries.includes(entry)) return; // removed meanwhile
    entry.file = file;
    slot(entry.item, "name").textContent = file.name;
    slot(entry.item, "size").textContent = sizeInWords(file.size);
    const problem = this.#sizeProblem(file);
    if (problem) return this.#failed(entry, problem);
    this.#upload(entry);
    this.#changed();
    this.#storeFileOf(entry);
  }

  #problem(file) {
    const { maxCount } = this.#form.dataset;
    const { name, size } = file;
    if (this.#entries.length >= maxCount) return tooMany(Number(maxCount));
    if (!size) return interpolate(gettext("“%(name)s” is empty."), { name });
    return isPicture(file) ? "" : this.#sizeProblem(file);
  }

  #sizeProblem({ name, size }) {
    const limit = Number(this.#form.dataset.maxSize);
    if (size <= limit) return "";
    const words = gettext("“%(name)s” has %(size)s; the limit for a file is %(limit)s.");
    return interpolate(words, { name, ...inWords({ size, limit }) });
  }

  /** `known` is what the server has, `stored` the name of what the browser stores. */
  #show({ file = null, known = null, stored = "" }) {
    const item = cloned("file");
    const { name, size, type } = file ?? { ...known, type: known.content_type };
    const entry = { item, file, known, stored, request: null, isFitting: false };
    slot(item, "name").textContent = name;
    slot(item, "size").textContent = size == null ? "" : sizeInWords(size);
    slot(item, "remove").ariaLabel = interpolate(gettext("Remove %(name)s"), { name });
    slot(item, "remove").addEventListener("click", () => this.#remove(entry));
    this.#entries.push(entry);
    this.#list.append(item);
    if (file || !stored) this.#picture(entry);
    return entry;
  }

  #picture(entry) {
    const type = entry.file?.type ?? entry.known.content_type;
    if (type.startsWith("image/")) showThumbnail(slot(entry.item, "picture"), entry);
  }

  #upload(entry) {
    if (!this.#url) return;
    const request = new XMLHttpRequest();
    const data = new FormData();
    data.append("file", entry.file, entry.file.name);
    entry.request = request;
    request.open("POST", this.#url);
    request.setRequestHeader("X-CSRFToken", $("[name=csrfmiddlewaretoken]").value);
    request.responseType = "json";
    const lost = gettext("“%(name)s” could not be sent. Try again.");
    const watch = watchProgress(request, () => this.#failed(entry, lost));
    request.upload.onprogress = (event) => {
      watch();
      progress(entry, event);
    };
    request.onload = () => this.#uploaded(entry, request);
    request.onerror = () => this.#failed(entry, lost);
    request.send(data);
  }

  #cancel() {
    this.stopWaiting();
    $("#text").focus();
  }

  #uploaded(entry, { status, response }) {
    if (status !== 201) {
      const refused = gettext("“%(name)s” could not be added.");
      return this.#failed(entry, response?.error?.message ?? refused);
    }
    entry.request = null;
    [entry.known] = response.data;
    slot(entry.item, "progress").hidden = true;
    slot(entry.item, "name").textContent = entry.known.name;
    this.#changed();
  }

  #failed(entry, problem) {
    entry.request = null;
    this.#tell(entry, problem);
    this.#drop(entry);
  }

  #tell(entry, problem) {
    const { name } = entry.file ?? entry.known;
    this.stopWaiting(); // the message is not sent without it
    const words = interpolate(problem, { name });
    const isNamed = words.split(name).slice(0, -1).some((before) => /[“„«]\s?$/.test(before));
    entry.problem = isNamed ? words : `“${name}” ${words}`;
    this.#complain(entry.problem);
  }

  #remove(entry) {
    this.stopWaiting(); // the message is another one now
    entry.request?.abort();
    entry.request = null;
    if (entry.stored) removeFile(entry.stored);
    else if (entry.known) {
      const headers = { "X-CSRFToken": $("[name=csrfmiddlewaretoken]").value };
      const url = `/api/attachments/${entry.known.id}/`;
      fetch(url, { method: "DELETE", headers }).catch(() => {});
    }
    this.#drop(entry);
    $("#text").focus();
  }

  #drop(entry) {
    this.#entries = this.#entries.filter((other) => other !== entry);
    entry.item.remove();
    this.#changed();
  }

  #changed() {
    this.#list.hidden = this.isEmpty;
    this.#store();
    if (this.isBusy || !this.#waiting) return;
    const act = this.#waiting;
    this.stopWaiting();
    act();
  }

  // Uploaded files survive a reload with the draft.

  #store() {
    if (!this.#url && !this.#isNew) return;
    const notes = this.#entries.map(noteOf).filter(Boolean);
    this.#isInDraft = this.#draft.storeFiles(notes);
  }

  /** The draft must name the file by now: what no draft names is removed. */
  #storeFileOf({ stored, file }) {
    if (stored && this.#isInDraft) storeFile(stored, file);
  }

  /** Shows files that were uploaded or stored earlier. */
  restore(files) {
    if (!this.#url && !this.#isNew) return;
    const shown = files.map(({ stored, ...known }) => this.#show({ known, stored }));
    for (const entry of shown.filter(({ stored }) => stored)) this.#load(entry);
    this.#changed();
  }

  /** Takes a file out of what the browser has stored; the message waits for it. */
  async #load(entry) {
    entry.isAwaited = true;
    const file = await storedFile(entry.stored).catch(() => null);
    entry.isAwaited = false;
    if (!this.#entries.includes(entry)) return; // removed meanwhile
    if (file === null) {
      entry.item.classList.add("is-unread");
      return this.#tell(entry, gettext("“%(name)s” cannot be read now. Reload the page to try again."));
    }
    if (!file) return this.#failed(entry, gettext("“%(name)s” is no longer there. Choose it again."));
    entry.file = file;
    this.#picture(entry);
    this.#changed();
  }

  // Choosing, pasting and dropping files

  #picked() {
    this.add(this.#input.files);
    this.#input.value = "";
  }

  #pasted(event) {
    const { files } = event.clipboardData;
    const text = event.clipboardData.getData("text/plain");
    const isLong = text.length > LONG_TEXT && !this.#isPlainPaste;
    if (!files.length && !isLong) return;
    event.preventDefault();
    this.add(files.length ? files : [this.#fileOf(text)]);
  }

  /** Of a text that would bury the message. */
  #fileOf(text) {
    this.#pastes += 1;
    const number = this.#pastes > 1 ? `-${this.#pastes}` : "";
    announce(gettext("The long text is attached as a file."));
    return new File([text], `${gettext("pasted")}${number}.txt`, { type: "text/plain" });
  }

  #dropping() {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    const mark = (isOver) => document.body.classList.toggle("is-dropping", isOver);
    addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      mark(true);
    });
    addEventListener("dragleave", (event) => event.relatedTarget ?? mark(false));
    addEventListener("drop", (event) => {
      mark(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.add(event.dataTransfer.files);
    });
  }
}

/** What an earlier version stored for all tabs. */
function takeOlder(conversation) {
  const found = local.get(OLDER + conversation);
  local.remove(OLDER + conversation);
  return JSON.parse(found ?? "[]");
}

/** What a draft names of a file; undefined before it is there. */
function noteOf({ file, known, stored }) {
  if (!stored) return known;
  const { name, size, type } = file ?? { ...known, type: known.content_type };
  return { name, size, content_type: type, stored };
}

function partOf({ id, name, content_type }) {
  if (content_type.startsWith("image/")) return { type: "input_image", file_id: id };
  return { type: "input_file", file_id: id, filename: name };
}

/** Ends a request that hangs. Call the result with each progress. */
function watchProgress(request, onStalled) {
  let timer = 0;
  const fail = () => {
    request.abort();
    onStalled();
  };
  const watch = (patience = STALLED) => {
    clearTimeout(timer);
    timer = setTimeout(fail, patience);
  };
  request.upload.onload = () => watch(UNANSWERED);
  request.onloadend = () => clearTimeout(timer);
  watch();
  return watch;
}

function progress({ item }, { loaded, total }) {
  const bar = slot(item, "progress");
  bar.hidden = false;
  bar.value = total ? loaded / total : 0;
}

/** Drawn: the content security policy allows no blob: URLs. */
async function showThumbnail(place, { file, known }) {
  try {
    const picture = file ?? (await (await fetch(`/api/attachments/${known.id}/`)).blob());
    const bitmap = await createImageBitmap(picture);
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = THUMBNAIL;
    const side = Math.min(bitmap.width, bitmap.height);
    const [x, y] = [(bitmap.width - side) / 2, (bitmap.height - side) / 2];
    const context = canvas.getContext("2d");
    context.drawImage(bitmap, x, y, side, side, 0, 0, THUMBNAIL, THUMBNAIL);
    bitmap.close();
    place.replaceChildren(canvas);
  } catch {
    place.replaceChildren(icon("file"));
  }
}

function tooMany(count) {
  const words = ngettext(
    "A message may have %(count)s file.",
    "A message may have %(count)s files.",
    count,
  );
  return interpolate(words, { count });
}

/** The page that was returned would lose the files. */
function isRefusedSession({ responseURL, responseXML }) {
  const isUnsent = Boolean(responseXML?.querySelector("form[data-unsent]"));
  return isUnsent || isSignIn({ redirected: true, url: responseURL });
}

function problemOf(page) {
  const found = page?.querySelector("#composer-errors .is-error");
  return found?.textContent.trim() ?? gettext("The files could not be added.");
}
