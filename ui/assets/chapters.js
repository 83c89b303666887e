/* The chapters' ticks and the line of pages, kept in step. The line is what counts: a tick adds a chapter's pages to it
   or takes them off, except for a page on its edge that another ticked chapter needs too. */
(() => {
  'use strict';
  const box = () => document.querySelector('#pages-wanted input, #pages-wanted textarea');
  const list = () => document.querySelector('#chapters .tf-chapters');
  const ticks = () => [...document.querySelectorAll('#chapters [data-chapter]')];
  const place = tick => ({ first: +tick.dataset.first, last: +tick.dataset.last, level: +tick.dataset.level });

  function read(text, most) {  // "1-3, 7" -> a set of pages; null if it is none
    const pages = new Set();
    for (const part of text.split(',')) {
      const match = /^\s*(\d{1,7})\s*(?:[-–]\s*(\d{1,7})\s*)?$/.exec(part);
      const [first, last] = match ? [+match[1], +(match[2] ?? match[1])] : [0, 0];
      if (first < 1 || last < first || last > most) return null;
      for (let page = first; page <= last; page += 1) pages.add(page);
    }
    return pages;
  }

  function write(pages) {
    const sorted = [...pages].sort((a, b) => a - b), ranges = [];
    for (const page of sorted) {
      const end = ranges[ranges.length - 1];
      if (end && page === end[1] + 1) end[1] = page;
      else ranges.push([page, page]);
    }
    box().value = ranges.map(([first, last]) => first < last ? `${first}-${last}` : `${first}`).join(', ');
    box().dispatchEvent(new Event('input', { bubbles: true }));  // Gradio reads it when it is told to
  }

  // The chapter's pages; from..to: those that no neighbour has too; inside: itself, what it holds, and what holds it.
  function own(all, at) {
    const { first, last, level } = place(all[at]);
    let end = at + 1;
    while (end < all.length && place(all[end]).level > level) end += 1;
    const inside = new Set();
    for (let i = at; i < end; i += 1) inside.add(i);
    for (let i = at - 1, rank = level; i >= 0; i -= 1) {
      if (place(all[i]).level < rank) { rank = place(all[i]).level; inside.add(i); }
    }
    const has = (other, page) => place(other).first <= page && page <= place(other).last;
    const shared = page => all.some((other, i) => !inside.has(i) && has(other, page));
    return { first, last, inside, from: first + shared(first), to: last - shared(last) };
  }

  function show(text) {
    const here = list();
    if (!here) return;
    const pages = read(text, +here.dataset.pages) ?? new Set(), all = ticks();
    all.forEach((tick, at) => {
      const { first, last, from, to } = own(all, at);
      let full = true, some = false;
      for (let page = first; page <= last; page += 1) {
        full &&= pages.has(page);
        some ||= page >= from && page <= to && pages.has(page);
      }
      tick.checked = full;
      tick.indeterminate = some && !full;
    });
  }

  function change(tick) {
    const most = +list().dataset.pages, all = ticks(), pages = read(box().value, most) ?? new Set();
    const { first, last, inside, from, to } = own(all, all.indexOf(tick));
    const kept = new Set();  // pages on the edge that a ticked neighbour shows as well
    for (const [at, other] of from <= to ? all.entries() : []) {  // one without a page of its own takes off all it has
      const its = place(other);
      if (inside.has(at) || !other.checked) continue;
      for (const page of [first, last]) {
        if ((page < from || page > to) && its.first <= page && page <= its.last) kept.add(page);
      }
    }
    for (let page = first; page <= last; page += 1) {
      if (tick.checked) pages.add(page);
      else if (!kept.has(page)) pages.delete(page);
    }
    write(pages);
  }

  document.addEventListener('change', event => {
    if (event.target.dataset?.chapter !== undefined) change(event.target);
  });
  document.addEventListener('input', event => {
    if (event.target.closest?.('#pages-wanted')) show(event.target.value);
  });
  document.addEventListener('click', event => {
    const button = event.target.closest?.('[data-chapters]');
    const most = list()?.dataset.pages;
    if (button) write(button.dataset.chapters === 'all' ? read(`1-${most}`, +most) : []);
  });

  function watch() {
    const panel = document.getElementById('chapters');
    if (!panel) { setTimeout(watch, 200); return; }
    new MutationObserver(() => show(list()?.dataset.chosen ?? '')).observe(panel, { childList: true, subtree: true });
    show(list()?.dataset.chosen ?? '');
  }
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', watch); else watch();
})();
