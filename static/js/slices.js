// Work in slices, so that the page answers its reader in between.

const SLICE = 8; // milliseconds

const pause = () =>
  globalThis.scheduler?.yield?.() ?? new Promise((resolve) => setTimeout(resolve));

/** Calls `act` with each value, in their order, as many at once as a slice has time for. */
export async function inSlices(values, act) {
  let until = performance.now() + SLICE;
  for (const value of values) {
    if (performance.now() >= until) {
      await pause();
      until = performance.now() + SLICE;
    }
    act(value);
  }
}
