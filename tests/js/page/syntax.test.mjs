// Every script of the pages can be parsed: a browser ignores a module that it cannot.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { dirname, join } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

const scripts = join(dirname(fileURLToPath(import.meta.url)), "../../../static/js");
const PARSE = `
  const { readFileSync, readdirSync } = require("node:fs");
  const { SourceTextModule } = require("node:vm");
  const names = readdirSync(process.argv[1], { recursive: true });
  for (const name of names.filter((each) => each.endsWith(".js"))) {
    new SourceTextModule(readFileSync(process.argv[1] + "/" + name, "utf8"), { identifier: name });
    console.log(name);
  }`;

test("all scripts can be parsed", () => {
  const options = ["--no-warnings", "--experimental-vm-modules", "--eval", PARSE, scripts];
  const parsed = execFileSync(process.execPath, options, { encoding: "utf8" });
  assert.ok(parsed.split("\n").length > 100);
});
