/* Conversations: shortcuts and their table, earlier questions in the composer, downloads, finding an answer again. */
(() => {
  'use strict';
  const byId = id => document.getElementById(id);
  const last = selector => [...document.querySelectorAll(selector)].pop();
  const question = () => document.querySelector('#question textarea');

  function write(words) {
    const box = question();
    box.value = words;
    box.dispatchEvent(new Event('input', { bubbles: true }));  // Gradio reads the box when it is told to
    box.focus();
    box.setSelectionRange(words.length, words.length);
  }

  function pane(name) {
    const chooser = document.querySelector(`.tf-panes [data-pane=${name}]`);
    if (chooser) chooser.click();
  }

  function focus(selector, where) {
    pane(where);
    const target = document.querySelector(selector);
    if (target) { target.focus(); target.select?.(); }
  }

  function showKeys() {
    const table = byId('key-table');
    table.showModal();
    table.scrollTop = 0;  // its button at the end has the focus, which scrolls a small window there
  }

  const LEAVE = '#leave-instructions, #leave-title, #leave-pages, #pick-budget [data-action=leave-together]';
  const openBox = () => [...document.querySelectorAll(LEAVE)].find(button => button.offsetParent);
  const typing = target => target.closest?.('input, textarea, select, [contenteditable=true]');

  document.addEventListener('keydown', event => {
    const { key, target } = event;
    if (event.isComposing || event.keyCode === 229 || document.querySelector('dialog[open]')) return;
    const command = event.ctrlKey || event.metaKey;
    let done = true;
    if (command && key === 'Enter' && target.closest?.('#question')) last('#transcript [data-action=again]')?.click();
    else if (command && !event.shiftKey && key.toLowerCase() === 'k') focus('#search input, #search textarea', 'library');
    else if (event.altKey && key.toLowerCase() === 'n') { byId('new-conversation')?.click(); focus('#question textarea', 'center'); }
    else if (event.altKey && '123'.includes(key)) {
      focus(['#documents .tf-current .tf-doc-open, #documents button', '#question textarea', '#side button'][key - 1],
        ['library', 'center', 'side'][key - 1]);
    } else if (key === 'ArrowUp' && target === question() && !target.value) last('#transcript [data-action=edit]')?.click();
    else if (key === 'Escape' && document.querySelector('#editing [data-action]')) {
      document.querySelector('#editing [data-action]').click();
      done = false;  // Stop hears it too
    } else if (key === 'Escape' && document.querySelector('.tf-menu[open]')) {
      const menu = document.querySelector('.tf-menu[open]');
      menu.open = false;
      menu.querySelector('summary').focus();
    } else if (key === 'Escape' && openBox()) openBox().click();
    else if (!typing(target) && !command && !event.altKey && key === '/') focus('#question textarea', 'center');
    else if (!typing(target) && command && key === 'z' && byId('undo')) byId('undo').click();
    else if (!typing(target) && !command && !event.altKey && key === '?') showKeys();
    else done = false;
    if (done) { event.preventDefault(); event.stopImmediatePropagation(); }
  }, true);

  document.addEventListener('click', event => {
    const target = event.target.closest?.('[data-action], [data-keys], .tf-menu');
    document.querySelectorAll('.tf-menu[open]').forEach(menu => { if (!menu.contains(event.target)) menu.open = false; });
    if (!target) return;
    if ('keys' in target.dataset) showKeys();
    const { action, question: words, answer } = target.dataset;
    if (action === 'edit') write(words);
    if (action === 'leave-edit') write('');
    if (action === 'instruct') meet('#instructions textarea', '#leave-instructions');
    if (action === 'rename') meet('#new-title input, #new-title textarea', '#leave-title');
    if (action === 'choose-pages') meet('#chapters [data-chapter], #pages-wanted :is(input, textarea)', '#leave-pages');
    if (action === 'together') {
      door = target.id ? `#${target.id}` : '#head [data-action=together]';
      meet('#pick input:enabled', '#pick-budget [data-action=leave-together]');
    }
    if (action === 'leave-together') lead(door, '#head [data-action=together]', '#together-button');
    if (action && target.closest('.tf-menu')) target.closest('.tf-menu').open = false;
    if (action?.startsWith('delete-')) lead('#undo');
    if (action === 'found') { pane('center'); lookFor(answer, 40); }
  });

  // What unfolds stays inside: a menu opens to the side where there is room, details move into sight.
  document.addEventListener('toggle', event => {
    const fold = event.target, column = fold.closest?.('#shell > .column');
    if (!fold.open || !column) return;
    if (fold.closest('#chat-scroll')) fold.scrollIntoView({ block: 'nearest' });
    if (!fold.matches('.tf-menu')) return;
    fold.classList.remove('tf-flip');
    const items = fold.querySelector('.tf-menu-items').getBoundingClientRect();
    fold.classList.toggle('tf-flip', items.right > column.getBoundingClientRect().right);
  }, true);

  let door = '';  // two buttons open the same box
  // The box that a button opens is where the typing goes on, and what closes it leads back to the button.
  function meet(field, way, tries = 40) {
    const box = document.querySelector(field);
    if (box?.offsetParent && !box.disabled) { box.focus(); return; }
    const leave = document.querySelector(way);
    if (box?.disabled && leave?.offsetParent) { leave.focus(); return; }
    if (tries) setTimeout(() => meet(field, way, tries - 1), 50);
  }
  document.addEventListener('click', event => {
    const box = event.target.closest?.('#keep-instructions, #leave-instructions') ? 'instruct'
      : event.target.closest?.('#save-title, #leave-title') ? 'rename' : '';
    if (box) lead(`#talk-bar [data-action=${box}]`);
    if (event.target.closest?.('#read-pages, #leave-pages')) lead('#head [data-action=choose-pages]');
  });
  // To the first of them that is shown (a narrow screen hides a pane), not away from where the person has gone meanwhile.
  function lead(...back) {
    const wait = tries => {
      const here = document.activeElement;
      if (here === document.body || !here?.offsetParent) {
        back.map(way => document.querySelector(way))
          .map(button => button?.closest('.tf-menu:not([open])')?.querySelector('summary') ?? button)
          .find(button => button?.offsetParent)?.focus();
      } else if (tries) setTimeout(() => wait(tries - 1), 50);
    };
    wait(40);
  }

  function lookFor(answer, tries) {  // the transcript is drawn a moment later
    const found = answer && byId(`answer-${answer}`);
    if (found) found.scrollIntoView({ block: 'start' });
    else if (tries) setTimeout(() => lookFor(answer, tries - 1), 50);
  }

  window.tfSave = parcel => {
    if (!parcel) return null;
    const [name, kind, content] = parcel;
    const link = Object.assign(document.createElement('a'), {
      href: URL.createObjectURL(new Blob([content], { type: kind })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    return null;
  };
})();
