// The next frame of a page, whether it is seen or not.

const HIDDEN_FRAME = 250; // milliseconds

/** Calls `act` before the next frame is drawn. A hidden page is given no frames, nor one
 *  that is hidden before the frame that it has requested. */
export function nextFrame(act) {
  let isDone = false;
  const once = () => {
    if (isDone) return;
    isDone = true;
    document.removeEventListener("visibilitychange", wait);
    act();
  };
  const wait = () => document.hidden && setTimeout(once, HIDDEN_FRAME);
  document.addEventListener("visibilitychange", wait);
  if (document.hidden) wait();
  else requestAnimationFrame(once);
}
