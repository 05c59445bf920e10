// Doing something again and again while somebody looks: never twice at once, and seldom while the
// tab is hidden.

export function repeat(everyMs, work) {
  let timer = null;
  let isStopped = false;
  async function turn() {
    clearTimeout(timer);
    await work();
    if (!isStopped) timer = setTimeout(turn, document.hidden ? 5 * everyMs : everyMs);
  }
  turn();
  return () => {
    isStopped = true;
    clearTimeout(timer);
  };
}
