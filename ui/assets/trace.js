/* Who wrote it: tells of the token under the mouse or the cursor, and shows in the strip what its round or sentence
   attended. Works on what Python drew (ui/page/provenance.py); every word is put in as text. */
(() => {
  'use strict';
  const SENTENCE_END = /[.!?…]["'”’)\]]*\s*$|\n/;
  const known = new WeakMap();

  function dataOf(box) {  // parsed once, when first pointed at
    if (!known.has(box)) {
      const data = JSON.parse(box.dataset.trace);
      const spans = [...box.querySelectorAll('.tf-tokens .tf-t')];
      let sentence = 0;
      const sentences = spans.map(span => {
        const mine = sentence;
        if (SENTENCE_END.test(span.textContent)) sentence += 1;
        return mine;
      });
      known.set(box, { data, spans, sentences, at: -1 });
    }
    return known.get(box);
  }

  const percent = share => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
  const visible = text => text.replace(/\n/g, '⏎').replace(/^ /, '␣') || '∅';

  function point(box, at) {
    const { data, spans, sentences } = dataOf(box);
    if (at < 0 || at >= spans.length) return;
    const [origin, round, chance, others] = data.tokens[at];
    known.get(box).at = at;
    const reach = box.querySelector('.tf-reach input:checked').value;
    const wide = reach === 'sentence' ? index => sentences[index] === sentences[at]
      : reach === 'answer' ? () => true : index => data.tokens[index][1] === round;
    spans.forEach((span, index) => {
      span.classList.toggle('tf-at', index === at);
      span.classList.toggle('tf-near', reach !== 'answer' && wide(index));
    });
    box.querySelectorAll('.tf-round').forEach(bar => bar.classList.toggle('tf-near', +bar.dataset.round === round));
    const rounds = spans.map((_, index) => index).filter(wide).map(index => data.tokens[index][1]);
    const pages = attended(rounds.map(round => data.rounds[round][3]));
    tell(box, spans[at].textContent, data, { origin, round, chance, others, pages });
    list(box, data, attended(rounds.map(round => data.seen[round])));
    lift(data, pages);
  }

  function attended(lists) {  // mean over rounds (each as often as it has tokens here) of [what, share]
    const sums = new Map();
    const measured = lists.filter(list => list.length);
    for (const one of measured) for (const [what, share] of one) sums.set(what, (sums.get(what) || 0) + share);
    return [...sums].map(([what, sum]) => [what, sum / measured.length]).sort((a, b) => b[1] - a[1]);
  }

  function list(box, data, found) {  // the sentences that were attended most
    const items = found.slice(0, 3).map(([index, share]) => {
      const [number, label, text, spot] = data.passages[index];
      const item = document.createElement('li'), button = document.createElement('button');
      const page = document.createElement('b'), much = document.createElement('span');
      button.type = 'button';
      button.className = 'tf-passage';
      Object.assign(button.dataset, { action: 'page', page: number, spot });
      page.textContent = label;
      much.className = 'tf-muted';
      much.textContent = percent(share);
      button.append(page, ' ', much, ' ', text);
      item.append(button);
      return item;
    });
    const place = box.querySelector('.tf-told-passages');
    place.hidden = !items.length;
    place.querySelector('ul').replaceChildren(...items);
  }

  function tell(box, text, data, { origin, round, chance, others, pages }) {
    const words = TF_WORDS.trace;
    const line = (name, value) => {
      const row = document.createElement('div');
      const label = document.createElement('span');
      label.textContent = name;
      const what = document.createElement('b');
      what.textContent = value;
      row.append(label, what);
      return row;
    };
    const stages = Object.entries(data.rounds[round][2]).map(([stage, spent]) => `${words.stages[stage] || stage} ${spent}`);
    const top = pages.slice(0, 3).map(([page, share]) => {
      const button = document.createElement('button');
      const number = data.first + page;
      button.type = 'button';
      button.className = 'tf-cite';
      button.dataset.action = 'page';
      button.dataset.page = number;
      button.textContent = `${data.labels[number - 1] ?? number} ${percent(share)}`;
      return button;
    });
    const rows = [
      line(words.token, `${visible(text)} · ${data.tiers[origin] || origin}`),
      line(words.chance, chance === null ? words.unknown
        : [percent(chance), ...others.filter(([word]) => word !== text).map(([word, p]) => `${visible(word)} ${percent(p)}`)].join('  ·  ')),
      line(words.round, `${round + 1} · ${stages.join(', ')} ms`),
    ];
    const where = line(words.attended, top.length ? '' : words.unmeasured);
    where.append(...top);
    box.querySelector('.tf-told').replaceChildren(...rows, where);
  }

  // -- the strip shows what was pointed at, until the pointer leaves ----------------------------------------------------
  let lifted = false;
  function lift(data, pages) {
    const cells = document.querySelectorAll('#strip .tf-page');
    if (!cells.length || !pages.length) { lower(); return; }
    const most = pages[0][1];
    const shares = new Map(pages.map(([page, share]) => [data.first + page, share]));
    cells.forEach(cell => {
      const share = shares.get(+cell.dataset.page) || 0;
      cell.style.setProperty('--j', Math.sqrt(share / most).toFixed(3));
    });
    document.querySelector('#strip .tf-strip')?.classList.add('tf-lifted');
    lifted = true;
  }
  function lower() {
    if (!lifted) return;
    lifted = false;
    document.querySelector('#strip .tf-strip')?.classList.remove('tf-lifted');
  }

  // -- hands --------------------------------------------------------------------------------------------------------------
  document.addEventListener('pointerover', event => {
    const box = event.target.closest?.('.tf-trace');
    if (!box) { lower(); return; }
    const token = event.target.closest('.tf-tokens .tf-t');
    if (token) { point(box, dataOf(box).spans.indexOf(token)); return; }
    const bar = event.target.closest('.tf-round');
    if (bar) point(box, dataOf(box).data.tokens.findIndex(one => one[1] === +bar.dataset.round));
  });
  document.addEventListener('focusin', event => {
    if (event.target.matches?.('.tf-tokens')) {
      const box = event.target.closest('.tf-trace');
      point(box, Math.max(0, dataOf(box).at));
    }
  });
  document.addEventListener('change', event => {
    const box = event.target.matches?.('.tf-reach input') && event.target.closest('.tf-trace');
    if (box) point(box, Math.max(0, dataOf(box).at));
  });
  document.addEventListener('keydown', event => {
    if (!event.target.matches?.('.tf-tokens')) return;
    const box = event.target.closest('.tf-trace'), state = dataOf(box);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    const to = event.key === 'Home' ? 0 : event.key === 'End' ? state.spans.length - 1 : step && state.at + step;
    if (to === undefined) return;
    event.preventDefault();
    point(box, Math.max(0, Math.min(state.spans.length - 1, to)));
    state.spans[state.at].scrollIntoView({ block: 'nearest' });
  });
})();
