/* A file dropped anywhere on the window is added, as if it had been dropped on the library: without this a browser leaves
   the page for the file. What is dragged inside the page (words, a picture) stays the browser's. */
(() => {
  'use strict';
  let inside = false, sheet = null, hiding = 0;
  const input = () => document.querySelector('#upload input[type=file]');
  const brings = event => !inside && [...(event.dataTransfer?.types ?? [])].includes('Files');

  function show(words, wrong = false) {
    if (!sheet) {
      sheet = document.createElement('div');
      sheet.className = 'tf-drop';
      sheet.setAttribute('role', 'status');
      sheet.append(document.createElement('p'));
      document.body.append(sheet);
    }
    clearTimeout(hiding);
    if (sheet.firstChild.textContent !== words) sheet.firstChild.textContent = words;
    sheet.classList.toggle('tf-drop-wrong', wrong);
    sheet.hidden = false;
  }
  function hide() {
    if (sheet) sheet.hidden = true;
  }

  // Gradio takes the field away while it uploads what came before.
  function add(files, tries) {
    const field = input();
    if (!field) { if (tries) setTimeout(() => add(files, tries - 1), 100); return; }
    const kinds = field.accept.split(',').map(kind => kind.trim().toLowerCase()).filter(Boolean);
    const known = files.filter(file => !kinds.length || kinds.some(kind => file.name.toLowerCase().endsWith(kind)));
    const other = files.filter(file => !known.includes(file)).map(file => file.name);
    if (other.length) {
      show(TF_WORDS.drop.other.replace('{names}', other.join(', ')), true);
      hiding = setTimeout(hide, 5000);
    }
    if (!known.length) return;
    const parcel = new DataTransfer();
    known.forEach(file => parcel.items.add(file));
    field.files = parcel.files;
    field.dispatchEvent(new Event('change', { bubbles: true }));
  }

  // Its button is called by what is shown on it (style.css), not by Gradio's words, which are shown to nobody.
  function name() {
    const button = document.querySelector('#upload .upload-container');
    if (!button || button.ariaLabel === TF_WORDS.drop.label) return;
    button.ariaLabel = TF_WORDS.drop.label;
    const texts = document.createTreeWalker(button, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = '';
  }
  function watch() {
    const upload = document.getElementById('upload');
    if (!upload) { setTimeout(watch, 100); return; }
    new MutationObserver(name).observe(upload, { childList: true, subtree: true });
    name();
  }
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', watch); else watch();

  addEventListener('dragstart', () => { inside = true; }, true);
  addEventListener('dragend', () => { inside = false; }, true);
  for (const kind of ['dragenter', 'dragover']) {
    addEventListener(kind, event => {
      if (!brings(event)) return;
      event.preventDefault();
      event.stopPropagation();
      event.dataTransfer.dropEffect = 'copy';
      show(TF_WORDS.drop.here);
    }, true);
  }
  addEventListener('dragleave', event => { if (brings(event) && !event.relatedTarget) hide(); }, true);
  addEventListener('drop', event => {
    if (!brings(event)) return;
    event.preventDefault();
    event.stopPropagation();
    hide();
    add([...event.dataTransfer.files], 300);
  }, true);
})();
