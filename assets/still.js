/* A page at rest draws nothing. Gradio's signs of loading ask for a frame sixty times a second, and where one is taken
   away before its clock is stopped, as happens at every start, it goes on asking for ever: a tenth of a core where a
   browser draws in software. Such a loop began before this script and cannot be reached by name, but frames are numbered
   in the order in which they are asked for: when for a long while every one brings as many new numbers as the one before,
   it is the loops that ask, and theirs are those beside ours. */
(() => {
  'use strict';
  const SETTLED = 3000, LONG = 30;  // ms after the page is there; frames
  let mine = 0, width = 0, same = 0, gap = 0;

  function start() {
    if (!document.getElementById('shell')) { setTimeout(start, 200); return; }
    setTimeout(() => { mine = requestAnimationFrame(look); }, SETTLED);
  }

  function look() {
    const before = mine;
    mine = requestAnimationFrame(look);
    const playing = document.body.classList.contains('tf-playing');  // a race: page.js asks for its frames
    same = mine - before === width && !playing ? same + 1 : 0;
    width = mine - before;
    if (same < LONG) return;
    if (width === 1) cancelAnimationFrame(mine);  // nobody asks but we
    else setTimeout(end, 0);  // between two frames, when all wait
  }

  function end() {
    const last = requestAnimationFrame(() => {}), before = gap;
    gap = last - mine;
    same = 0;
    if (gap !== before) return;  // once more: somebody else may have asked just now
    for (let each = last - width; each < last; each += 1) cancelAnimationFrame(each);
  }

  start();
})();
