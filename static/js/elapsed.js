// Times that run: `Thinking 12 s`. One timer for the whole page, and only while needed.

const running = new Map(); // element -> {label, since}
let timer = 0;

export function duration(seconds) {
  if (seconds < 0.95) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const [minutes, rest] = [Math.floor(seconds / 60), Math.round(seconds) % 60];
  return minutes ? `${minutes} min ${rest} s` : `${Math.round(seconds)} s`;
}

/** Show `label` and the seconds since `since` (of performance.now()) until it ends. */
export function run(element, label, since) {
  running.set(element, { label, since });
  show(element, label, since);
  timer ||= setInterval(tick, 1000);
}

/** Since when the time of this element runs; undefined where it does not. */
export function sinceOf(element) {
  return running.get(element)?.since;
}

export function end(element, text) {
  running.delete(element);
  element.textContent = text;
}

function tick() {
  for (const [element, { label, since }] of running) {
    if (element.isConnected) show(element, label, since);
    else running.delete(element);
  }
  if (!running.size) timer = clearInterval(timer) ?? 0;
}

function show(element, label, since) {
  const seconds = Math.floor((performance.now() - since) / 1000);
  const time = seconds < 1 ? "" : duration(seconds);
  element.textContent = [label, time.replace(".0 ", " ")].filter(Boolean).join(" ");
}
