// A part of a page that fetches itself anew, until it says that nothing more changes.
// Without this script, reloading the page does it.

const PAUSE = 5000; // milliseconds, unless the page names another
const board = document.querySelector('[data-board]');
let timer;

async function refresh() {
  // The page is hidden, or a button that would move has the focus.
  if (document.hidden || board.contains(document.activeElement)) return;
  try {
    const response = await fetch(board.dataset.board, { credentials: 'same-origin' });
    if (!response.ok || response.redirected) throw new Error(response.status);
    board.innerHTML = await response.text();
    board.classList.remove('is-stale');
    if (board.querySelector('[data-board-end]')) clearInterval(timer);
  } catch {
    board.classList.add('is-stale');
  }
}

if (board) timer = setInterval(refresh, Number(board.dataset.pause) || PAUSE);
