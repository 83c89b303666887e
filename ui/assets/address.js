/* The address names what is shown (ui/app/tabs.py): Back and Forward lead through it, and a reload, a bookmark and a
   link find it again. Python says what is shown; what the browser goes to is told to Python. */
(() => {
  'use strict';
  const byId = id => document.getElementById(id);
  const named = () => {
    const words = location.hash.replace(/^#/, '');
    try { return decodeURIComponent(words); } catch { return words; }  // somebody typed half of it
  };
  let asked = 0, shown = null;  // how often the browser has gone somewhere; what Python said last

  window.tfRemembered = remembered => ({ ...remembered, address: named() });  // for the first drawing of a tab
  window.tfLink = (document_, page, spot) => {
    const at = spot ? `&at=${spot}` : '';
    return `${location.origin}${location.pathname}#document=${document_.slice(0, 12)}&page=${page}${at}`;
  };

  // To turn pages, or to ask the first question of a conversation, is no step that Back would undo.
  function isStep(before, now) {
    const [old, fresh] = [before, now].map(one => new URLSearchParams(one.address));
    return old.get('document') !== fresh.get('document') || now.openings !== before.openings
      || (old.get('conversation') !== null && old.get('conversation') !== fresh.get('conversation'));
  }

  // Words that were typed and not asked belong to their document, and outlive a reload of the tab.
  let about = null;  // the document whose words stand in the question line; '' before there is one
  const line = () => document.querySelector('#question textarea');
  const draftOf = key => `triforce-draft-${key}`;
  function keepDraft() {
    if (about === null || !line()) return;
    if (line().value) sessionStorage.setItem(draftOf(about), line().value);
    else sessionStorage.removeItem(draftOf(about));
  }
  function turnTo(key) {
    if (key === about || !line()) return;
    const words = sessionStorage.getItem(draftOf(key)) ?? (about ? '' : line().value);  // typed before a document came
    if (about) keepDraft();
    about = key;
    if (line().value === words) return;
    line().value = words;
    line().dispatchEvent(new Event('input', { bubbles: true }));  // Gradio reads the line when it is told to
  }
  addEventListener('pagehide', keepDraft);

  function follow() {
    const told = byId('address')?.querySelector('[data-address]')?.dataset;
    if (!told || +told.asked < asked) return;  // said before it heard where the browser went
    const before = shown;
    shown = { ...told };
    turnTo(new URLSearchParams(told.address).get('document') ?? '');
    document.title = told.title;
    if (told.address === named()) return;
    const where = `${location.pathname}${location.search}${told.address && '#'}${told.address}`;
    // What answers a step of the browser belongs to its place: after another entry there would be no Forward.
    if (before?.asked === told.asked && isStep(before, shown)) history.pushState(null, '', where);
    else history.replaceState(null, '', where);
  }

  addEventListener('popstate', () => {
    const button = byId('address-go')?.querySelector('button');
    if (!button || named() === shown?.address) return;
    shown = { ...shown, address: named() };
    button.dataset.asked = ++asked;
    button.dataset.address = named();
    button.click();
  });

  function watch() {
    const state = byId('address');
    if (!state) { setTimeout(watch, 100); return; }
    new MutationObserver(follow).observe(state, { childList: true, subtree: true, attributes: true });
    follow();
  }
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', watch); else watch();
})();
