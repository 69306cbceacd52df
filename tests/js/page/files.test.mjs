// A message that waits for its files.
import assert from "node:assert/strict";
import test from "node:test";

import { Element, addTemplate, openPage, slotted } from "./page.mjs";

const { body } = openPage();
body.dataset.user = "1";
body.append(
  new Element("form", { id: "composer", "data-max-size": "1000", "data-max-count": "5" }),
  new Element("ul", { id: "attached" }),
  new Element("input", { id: "file" }),
  new Element("input", { name: "csrfmiddlewaretoken" }),
);
addTemplate("file", slotted("li", {}, "name", "size", "remove", "picture", "progress"));
globalThis.addEventListener = () => {};
globalThis.localStorage = { getItem: () => null, setItem() {}, removeItem() {} };
const requests = [];
globalThis.XMLHttpRequest = class {
  upload = {};
  open() {}
  setRequestHeader() {}
  send() {
    requests.push(this);
  }
};
const { Files } = await import("../../../static/js/files.js");

test("a message is not sent without the file that failed", () => {
  const complaints = [];
  const files = new Files({ conversation: "1", url: "/up/", complain: (why) => complaints.push(why) });
  files.add([new File(["one"], "one.txt"), new File(["two"], "two.txt")]);
  let sent = 0;
  files.whenReady(() => (sent += 1));
  const [one, two] = requests;
  one.onerror();
  Object.assign(two, { status: 201, response: { data: [{ id: "2", name: "two.txt", content_type: "text/plain" }] } });
  two.onload();
  assert.equal(sent, 0);
  assert.deepEqual(complaints, ["“one.txt” could not be sent. Try again."]);
  files.whenReady(() => (sent += 1));
  files.add([new File(["one"], "one.txt")]);
  const [, , again] = requests;
  Object.assign(again, { status: 201, response: { data: [{ id: "1", name: "one.txt", content_type: "text/plain" }] } });
  again.onload();
  assert.equal(sent, 1);
});
