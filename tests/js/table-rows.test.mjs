// Tables in text that streams: lines without end.
import test from "node:test";
import { Worker } from "node:worker_threads";

const MODULE = new URL("../../static/js/reading/table-rows.js", import.meta.url);

for (const filling of [" ", "\t", "- ", ":-", "|", ">", "> "]) {
  const name = JSON.stringify(filling);
  const options = { timeout: 60_000 };
  test(`a million of ${name} below a line with a bar are read at once`, options, (t) => {
    const text = `a | b\n${filling.repeat(1_000_000)}x\n`;
    const script = `import("${MODULE}").then(({ TableRows }) => {
      for (const piece of new TableRows().push(${JSON.stringify(text)}, true)) void piece;
    });`;
    const worker = new Worker(script, { eval: true });
    t.signal.addEventListener("abort", () => worker.terminate());
    return new Promise((resolve, reject) => {
      worker.on("error", reject);
      worker.on("exit", resolve);
    });
  });
}
