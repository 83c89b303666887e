/* The page view: a picture of the page with its text over it, marks, search, zoom, thumbnails. What is open comes from
   Python (#page-open); page turns happen here at once and are reported back. Text enters the page as text, never as HTML. */
(() => {
  'use strict';
  const byId = id => document.getElementById(id);
  const make = (tag, css, text) => {
    const element = document.createElement(tag);
    if (css) element.className = css;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const ZOOMS = [1, 1.25, 1.5, 2, 3, 4];
  const open = { document: '', pages: 0, names: [], picture: false, page: 0, spot: '', serial: '' };
  let zoom = 0, asked = 0, hits = [], hit = -1, searched = '';
  const part = css => byId('page')?.querySelector(css);
  const named = page => open.names[page - 1] ?? `${page}`;  // "iv (4 of 60)"
  const numbered = typed => open.names.findIndex(one => one.startsWith(`${typed} (`)) + 1;
  const address = (page, what) => `pages/${open.document}/${page}/${what}`;

  // -- what Python opens ----------------------------------------------------------------------------------------------
  function follow() {
    const state = byId('page-open')?.querySelector('[data-page]');
    if (!state) return;
    const data = state.dataset;
    if (!data.page) { show(false); open.serial = ''; return; }
    if (data.document === open.document && data.serial === open.serial) {
      Object.assign(open, { pages: +data.pages, names: JSON.parse(data.names) });  // more of it may have been read
      byId('page-count').textContent = `/ ${open.pages}`;
      return;
    }
    if (data.document !== open.document) {
      Object.assign(open, { document: data.document, pages: +data.pages, picture: data.picture === '1',
        names: JSON.parse(data.names) });
      forget();
    }
    open.serial = data.serial;
    show(true);
    go(+data.page, data.spot, false);
  }

  function show(on) {
    part('.tf-reader').hidden = !on;
    part('.tf-no-page').hidden = on;
    if (!on) { open.document = ''; part('.tf-sheet').replaceChildren(); }
  }

  function forget() {  // another document
    hits = []; hit = -1; searched = '';
    byId('page-find').value = '';
    byId('page-hits').textContent = '';
    part('.tf-thumbs').hidden = true;
    part('.tf-thumbs').replaceChildren();
  }

  // -- one page ---------------------------------------------------------------------------------------------------------
  async function go(page, spot = '', report = true) {
    page = Math.max(1, Math.min(open.pages, page || 1));
    open.page = page;
    open.spot = spot;
    byId('page-number').value = page;
    byId('page-count').textContent = `/ ${open.pages}`;
    const mine = ++asked, document_ = open.document;
    if (report) tell(page);
    let data;
    try {
      const answer = await fetch(`${address(page, 'text')}?spot=${encodeURIComponent(spot)}`);
      if (!answer.ok) throw new Error(String(answer.status));
      data = await answer.json();
    } catch {
      data = { title: '', text: '', ranges: [], broken: true };
    }
    if (mine !== asked || document_ !== open.document) return;  // another page was asked for meanwhile
    draw(data);
  }

  let telling = 0;
  function tell(page) {  // of pages that are leafed through, the last
    clearTimeout(telling);
    const from = { document: open.document, serial: open.serial };  // too late once Python has opened another
    telling = setTimeout(() => {
      const button = byId('page-turned')?.querySelector('button');
      if (button) { Object.assign(button.dataset, { page, ...from }); button.click(); }
    }, 150);
  }

  function draw(data) {
    const sheet = part('.tf-sheet'), box = part('.tf-sheets');
    byId('page-label').textContent = data.title;
    byId('page-label').classList.toggle('tf-long', 24 * data.title.length > part('.tf-reader').clientWidth);
    sheet.className = data.pieces ? 'tf-sheet tf-set' : 'tf-sheet tf-page-text';
    sheet.style.aspectRatio = data.pieces ? `1 / ${data.ratio}` : '';
    sheet.style.width = `${100 * ZOOMS[zoom]}%`;
    sheet.style.fontSize = data.pieces ? '' : `${14 * Math.sqrt(ZOOMS[zoom])}px`;
    sheet.dataset.page = open.page;
    sheet.replaceChildren(...(data.pieces ? asSet(data) : asText(data)));
    fit(sheet, data);
    const mark = sheet.querySelector('mark');
    if (mark) meet(box, mark);
    else box.scrollTop = 0;
    for (const item of part('.tf-thumbs').querySelectorAll('[aria-current]')) item.removeAttribute('aria-current');
    const thumb = part(`.tf-thumbs [data-thumb="${open.page}"]`);
    if (thumb) { thumb.setAttribute('aria-current', 'true'); thumb.scrollIntoView({ block: 'nearest' }); }
  }

  function meet(box, mark) {  // only the page moves to its mark: in a low window the bar above it would go out of sight
    const there = mark.getBoundingClientRect(), here = box.getBoundingClientRect();
    box.scrollBy(there.left + there.width / 2 - here.left - here.width / 2,
      there.top + there.height / 2 - here.top - here.height / 2);
    byId('side').scrollTop = 0;
  }

  function asText(data) {
    if (data.broken) return [make('em', '', TF_WORDS.pageBroken)];
    if (!data.text.trim()) return [make('em', '', TF_WORDS.pageEmpty)];
    const found = [];
    let done = 0;
    for (const [start, end] of data.ranges) {
      if (start < done) continue;
      found.push(document.createTextNode(data.text.slice(done, start)), make('mark', '', data.text.slice(start, end)));
      done = end;
    }
    found.push(document.createTextNode(data.text.slice(done)));
    return found;
  }

  function asSet(data) {
    const place = (element, [left, top, width, height]) => {
      Object.assign(element.style, { left: `${left * 100}%`, top: `${top * 100}%`, width: `${width * 100}%`,
        height: `${height * 100}%` });
      return element;
    };
    const picture = make('img', 'tf-picture');
    picture.alt = '';  // the text layer says what it shows
    picture.src = source();
    const layer = make('div', 'tf-layer');
    picture.onerror = () => { picture.remove(); layer.classList.add('tf-alone'); };  // better plain words than none
    for (const [text, box] of data.pieces) {
      const piece = make('span', '', text);
      piece.dir = 'auto';
      piece.style.cssText = `left:${box[0] * 100}%;top:${box[1] * 100}%;font-size:${box[3] * data.ratio * 100}cqw`;
      layer.append(piece, document.createTextNode('\n'));
    }
    return [picture, ...data.marks.map(box => place(make('mark', 'tf-box'), box)), layer];
  }

  function fit(sheet, data) {  // the browser's font is not the page's: each piece is stretched to its place
    const wide = sheet.clientWidth;
    const pieces = [...sheet.querySelectorAll('.tf-layer span')];
    const widths = pieces.map(piece => piece.offsetWidth);
    pieces.forEach((piece, at) => {
      if (widths[at]) piece.style.transform = `scaleX(${(data.pieces[at][1][2] * wide / widths[at]).toFixed(4)})`;
    });
  }

  const source = () => {
    const wanted = part('.tf-sheets').clientWidth * ZOOMS[zoom] * Math.min(2, devicePixelRatio || 1);
    return `${address(open.page, 'picture')}?width=${Math.min(9999, Math.round(wanted))}`;
  };

  function resize(step) {
    const sheet = part('.tf-sheet'), box = part('.tf-sheets'), picture = sheet.querySelector('img');
    const across = (box.scrollLeft + box.clientWidth / 2) / box.scrollWidth;
    const down = (box.scrollTop + box.clientHeight / 2) / box.scrollHeight;
    zoom = Math.max(0, Math.min(ZOOMS.length - 1, zoom + step));
    sheet.style.width = `${100 * ZOOMS[zoom]}%`;
    if (picture) picture.src = source();
    else sheet.style.fontSize = `${14 * Math.sqrt(ZOOMS[zoom])}px`;
    box.scrollTo(across * box.scrollWidth - box.clientWidth / 2, down * box.scrollHeight - box.clientHeight / 2);
  }

  // -- thumbnails -------------------------------------------------------------------------------------------------------
  function thumbs() {
    const list = part('.tf-thumbs');
    list.hidden = !list.hidden;
    if (list.hidden || list.children.length) return;
    for (let page = 1; page <= open.pages; page += 1) {
      const button = make('button', open.picture ? 'tf-thumb' : 'tf-thumb tf-thumb-text');
      Object.assign(button, { type: 'button', title: named(page) });
      button.dataset.thumb = page;
      if (open.picture) {
        const picture = make('img');
        Object.assign(picture, { loading: 'lazy', alt: '', width: 72, height: 96 });
        picture.src = `${address(page, 'picture')}?width=160`;
        picture.onerror = () => { picture.remove(); button.classList.add('tf-thumb-text'); };  // of several, a text
        button.append(picture);
      }
      button.append(make('span', '', named(page)));
      if (page === open.page) button.setAttribute('aria-current', 'true');
      const item = make('li');
      item.append(button);
      list.append(item);
    }
    part('.tf-thumbs [aria-current]')?.scrollIntoView({ block: 'center' });
  }

  // -- search -------------------------------------------------------------------------------------------------------------
  async function find() {
    const words = byId('page-find').value.trim(), document_ = open.document;
    if (words === searched) { step(1); return; }
    searched = words;
    hits = []; hit = -1;
    let found = { total: 0, hits: [] };
    if (words) {
      try {
        const answer = await fetch(`pages/${document_}/find?words=${encodeURIComponent(words)}`);
        if (!answer.ok) throw new Error(String(answer.status));
        found = await answer.json();
      } catch {
        if (words !== searched || document_ !== open.document) return;
        searched = null;  // Enter asks again
        byId('page-hits').textContent = TF_WORDS.findBroken;
        return;
      }
    }
    if (words !== searched || document_ !== open.document) return;
    hits = found.hits;
    byId('page-hits').textContent = words ? `${found.total}` : '';
    const here = hits.findIndex(one => one.page >= open.page);
    if (hits.length) { hit = Math.max(0, here) - 1; step(1); }
  }

  function step(by) {
    if (!hits.length) return;
    hit = (hit + by + hits.length) % hits.length;
    byId('page-hits').textContent = `${hit + 1} / ${hits.length}`;
    go(hits[hit].page, hits[hit].spot);
  }

  async function copyLink(button) {
    await tfCopy(tfLink(open.document, open.page, open.spot));
    button.title = button.ariaLabel = TF_WORDS.linked;
    button.classList.add('tf-did');
    setTimeout(() => {
      button.title = button.ariaLabel = TF_WORDS.link;
      button.classList.remove('tf-did');
    }, 1500);
  }

  // -- hands --------------------------------------------------------------------------------------------------------------
  const deeds = {
    previous: () => go(open.page - 1), next: () => go(open.page + 1), smaller: () => resize(-1), larger: () => resize(1),
    thumbs, 'hit-before': () => step(-1), 'hit-after': () => step(1),
    link: copyLink,
    close: () => { tell(''); show(false); },
  };
  document.addEventListener('click', event => {
    const button = event.target.closest?.('[data-reader]');
    if (button) deeds[button.dataset.reader](button);
    const thumb = event.target.closest?.('[data-thumb]');
    if (thumb) go(+thumb.dataset.thumb);
  });
  document.addEventListener('submit', event => {
    if (event.target.matches('.tf-find')) { event.preventDefault(); find(); }
  }, true);
  document.addEventListener('keydown', event => {
    if (event.target.id === 'page-number' && event.key === 'Enter') go(parseInt(event.target.value, 10) || numbered(event.target.value.trim()) || open.page);
    if (!event.target.classList?.contains('tf-sheets')) return;
    const keys = { ArrowRight: () => go(open.page + 1), ArrowLeft: () => go(open.page - 1), '+': () => resize(1),
      '-': () => resize(-1), Home: () => go(1), End: () => go(open.pages) };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });

  function watch() {
    const state = byId('page-open');
    if (!state || !byId('page')) { setTimeout(watch, 100); return; }
    new MutationObserver(follow).observe(state, { childList: true, subtree: true, attributes: true });
    follow();
  }
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', watch); else watch();
})();
