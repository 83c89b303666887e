/* A page at rest draws nothing. Gradio's sign of loading asks for a frame sixty times a second, and where it is taken
   away before its clock is stopped, as happens at every start, goes on asking for ever: a tenth of a core where a browser
   draws in software. Its loop began before this script and cannot be reached by name, but frames are numbered in the
   order in which they are asked for: once nobody but it and this script has asked for a long while, its is the other. */
(() => {
  'use strict';
  const SETTLED = 3000, LONG = 30;  // ms after the page is there; frames
  let mine = 0, quiet = 0, alone = 0;

  function start() {
    if (!document.getElementById('shell')) { setTimeout(start, 200); return; }
    setTimeout(() => { mine = requestAnimationFrame(look); }, SETTLED);
  }

  function look() {
    const before = mine;
    mine = requestAnimationFrame(look);
    quiet = mine === before + 2 ? quiet + 1 : 0;
    alone = mine === before + 1 ? alone + 1 : 0;
    if (alone > LONG) cancelAnimationFrame(mine);  // a Gradio without that loop
    else if (quiet > LONG) setTimeout(end, 0);  // between two frames, when both wait
  }

  function end() {
    const last = requestAnimationFrame(() => {});
    const other = last === mine + 1 ? mine - 1 : last === mine + 2 ? mine + 1 : 0;
    if (!other) { quiet = 0; return; }  // somebody else has asked meanwhile
    cancelAnimationFrame(other);
    cancelAnimationFrame(mine);
  }

  start();
})();
