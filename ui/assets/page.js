/* The page's own behaviour: keys, panes on narrow screens, staying at the end of the chat, copying, the race's replay.
   Everything that is data comes from Python; everything here works on what is already on the screen. */
(() => {
  'use strict';
  const byId = id => document.getElementById(id);
  const shown = element => element && element.offsetParent !== null;
  let pinned = 'asked', shownAnswer = '';  // what the chat stays at: the last question or its end; traced answer

  // In Safari the Enter that ends a conversion comes when composing is over.
  const composing = event => event.isComposing || event.keyCode === 229;

  // -- keys ---------------------------------------------------------------------------------------------------------
  document.addEventListener('keydown', event => {
    const target = event.target;
    if (event.key === 'Enter' && !composing(event) && target.matches?.('#question textarea, #race-question textarea')) {
      if (event.shiftKey) { event.stopPropagation(); return; }  // a new line, whatever Gradio makes of it
      event.preventDefault();
      event.stopPropagation();
      byId(target.closest('#question') ? 'send' : 'race-start')?.click();
    } else if (event.key === 'Escape' && !document.querySelector('dialog[open]')) {
      const stop = [byId('stop'), byId('race-stop')].find(shown);
      if (stop && !stop.disabled) stop.click();
    } else if (target.classList?.contains('tf-page')) {
      turnPage(event, target);
    }
  }, true);

  function turnPage(event, cell) {  // the strip is one tab stop; arrows move inside it
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 };
    const cells = [...cell.parentElement.children];
    const here = cells.indexOf(cell);
    let next = event.key in steps ? here + steps[event.key] : event.key === 'Home' ? 0
      : event.key === 'End' ? cells.length - 1 : null;
    if (next === null) return;
    event.preventDefault();
    next = Math.max(0, Math.min(cells.length - 1, next));
    cell.tabIndex = -1;
    cells[next].tabIndex = 0;
    cells[next].focus();
  }

  // -- clicks -------------------------------------------------------------------------------------------------------
  document.addEventListener('click', event => {
    const copy = event.target.closest('[data-copy]');
    if (copy) copyFrom(copy);
    const aloud = event.target.closest('[data-aloud]');
    if (aloud) readAloud(aloud);
    const replay = event.target.closest('[data-replay]');
    if (replay) play(document.querySelector('[data-race]'));
    const picture = event.target.closest('[data-picture]');
    if (picture) savePicture(picture.dataset.picture);
    const tab = event.target.closest('[data-tab]');
    if (tab) {
      byId(`tab-${tab.dataset.tab}-button`)?.click();
      byId('tabs').scrollIntoView({ block: 'start' });
    }
    const trace = event.target.closest('#transcript [data-action="trace"][aria-pressed="false"]');
    if (trace) shownAnswer = trace.dataset.answer;  // its colours are where the eye goes, not what stands below them
    const fold = event.target.closest('#statistics > button');
    if (fold) fold.ariaExpanded = String(fold.ariaExpanded !== 'true');
    if (event.target.closest('#send')) pinned = 'asked';
    const pane = event.target.closest('[data-pane]');
    if (pane) showPane(pane.dataset.pane);
    if (event.target.closest('[data-action="open"], [data-action="conversation"], [data-action="new-conversation"], '
      + '[data-action="together"]')) {
      showPane('center');
    }
    if (event.target.closest('[data-action="page"]') && event.target.closest('#center')) showPane('side');
  });

  function showPane(name) {
    document.body.dataset.pane = name;
    document.querySelectorAll('[data-pane]').forEach(button => {
      if (button !== document.body) button.setAttribute('aria-pressed', String(button.dataset.pane === name));
    });
  }

  function savePicture(address) {  // the race as a PNG, twice as fine
    const image = new Image();
    image.onload = () => {
      const canvas = Object.assign(document.createElement('canvas'), { width: image.width * 2, height: image.height * 2 });
      canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
      Object.assign(document.createElement('a'), { download: 'race.png', href: canvas.toDataURL('image/png') }).click();
    };
    image.src = address;
  }

  // What a person would write: “words” (p. 17, p. 18 and 8 more places), not the labels of buttons in a row.
  function wordsOf(source) {
    const copy = source.cloneNode(true), chip = '.tf-cite, .tf-cite-more, .tf-uncited';
    for (const first of [...copy.querySelectorAll(chip)]) {
      if (!copy.contains(first)) continue;  // said with the one before it
      let said = first.textContent.replace(/\s*≈$/, '');
      while (first.nextSibling?.matches?.(chip)) {
        const next = first.nextSibling;
        said += (next.matches('.tf-cite-more') ? ' ' : ', ') + next.textContent.replace(/\s*≈$/, '');
        next.remove();
      }
      first.replaceWith(` (${said})`);
    }
    copy.style.cssText = 'position: fixed; left: -9999px; width: 600px';  // lines break only in what is laid out
    document.body.append(copy);
    const words = copy.innerText;
    copy.remove();
    return words;
  }

  window.tfCopy = async text => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = Object.assign(document.createElement('textarea'), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
  };

  // -- the browser reads an answer aloud, sentence by sentence: some stop in the middle of what is long -----------------
  const voice = window.speechSynthesis;
  const own = () => {  // a voice of this machine: some browsers send the words of others to a server
    const local = voice?.getVoices().filter(one => one.localService) ?? [];
    return local.find(one => one.default) ?? local[0];
  };
  const hasVoice = () => document.documentElement.classList.toggle('tf-speaks', Boolean(own()));
  hasVoice();
  voice?.addEventListener?.('voiceschanged', hasVoice);
  function readAloud(button) {
    const going = button.getAttribute('aria-pressed') === 'true';
    const over = () => {
      document.querySelectorAll('[data-aloud]').forEach(one => {
        one.setAttribute('aria-pressed', 'false');
        one.textContent = TF_WORDS.readAloud;
      });
    };
    voice.cancel();
    over();
    if (going) return;
    const words = wordsOf(button.closest('.tf-answer').querySelector('.tf-prose, .tf-tokens'));
    const parts = words.match(/[^.!?\n]+[.!?\n]*/g)?.filter(part => part.trim()) ?? [];
    const said = parts.map(part => new SpeechSynthesisUtterance(part.trim()));
    if (!said.length) return;
    said.at(-1).onend = over;
    said.forEach(one => { one.voice = own(); voice.speak(one); });
    button.setAttribute('aria-pressed', 'true');
    button.textContent = TF_WORDS.readSilent;
  }

  async function copyFrom(button) {
    const source = button.dataset.copy === 'code' ? button.parentElement.querySelector('code')
      : button.closest('.tf-answer').querySelector('.tf-prose, .tf-tokens');
    await tfCopy(source ? wordsOf(source) : '');
    button.textContent = TF_WORDS.copied;
    setTimeout(() => { button.textContent = TF_WORDS.copy; }, 1500);
  }

  // -- staying at the end of the chat, unless the person scrolled up: but the last question and the passages below it
  //    are not pushed out of sight by the words that follow ---------------------------------------------------------------
  function watchChat() {
    const box = byId('chat-scroll');
    if (!box) { setTimeout(watchChat, 100); return; }
    let wide = box.clientWidth, talk = false;  // talk: something was asked; what stands there before is read from its top
    const end = () => box.scrollHeight - box.clientHeight;
    const asked = () => {
      const last = [...box.querySelectorAll('.tf-question')].at(-1);
      return Math.min(end(), last.getBoundingClientRect().top - box.getBoundingClientRect().top + box.scrollTop - 8);
    };
    const settle = () => { if (pinned) box.scrollTop = pinned === 'end' ? end() : asked(); };
    box.addEventListener('scroll', () => {  // a person's; what a new width does to the lines is none
      if (!talk || box.clientWidth !== wide) return;
      const near = place => Math.abs(box.scrollTop - place) < 80;
      pinned = near(asked()) ? 'asked' : near(end()) ? 'end' : '';
    });
    new ResizeObserver(() => {  // the page view opened beside it: what was in sight stays there
      if (talk && box.clientWidth !== wide) settle();
      wide = box.clientWidth;
    }).observe(box);
    const grows = record => {  // what is told of a token under the mouse is no news
      const where = record.target.nodeType === Node.TEXT_NODE ? record.target.parentElement : record.target;
      return !where?.closest('.tf-trace');
    };
    new MutationObserver(records => {
      const before = talk;
      talk = Boolean(box.querySelector('.tf-question'));
      if (!talk) {
        if (before) box.scrollTop = 0;
        return;
      }
      if (!before) pinned = 'asked';
      const answer = shownAnswer ? byId(`answer-${shownAnswer}`) : null;
      if (answer?.querySelector('.tf-by-token')) {
        shownAnswer = '';
        answer.scrollIntoView({ block: 'start' });
      } else if (records.some(grows)) settle();
    })
      .observe(box, { childList: true, subtree: true, characterData: true });
  }

  // -- the race's replay ----------------------------------------------------------------------------------------------
  const played = new Set();
  let turn = 0;
  window.tfWatchRace = board => {
    const fresh = () => {
      const race = board.querySelector('[data-race]');
      if (race && race.dataset.fresh === '1' && !played.has(race.dataset.race)) {
        played.add(race.dataset.race);
        play(race);
      }
    };
    new MutationObserver(fresh)
      .observe(board, { childList: true, subtree: true, attributes: true, attributeFilter: ['data-race'] });
    fresh();
  };

  function play(race) {
    if (!race) return;
    const mine = ++turn;
    const lanes = [...race.querySelectorAll('[data-marks]')].map(lane => {
      const box = lane.querySelector('.tf-lane-text');
      const full = box.tfFull ??= box.cloneNode(true);
      box.replaceChildren(...full.cloneNode(true).childNodes);
      box.style.minHeight = `${box.offsetHeight}px`;  // the lanes keep their height while the words come
      return { lane, box, full, marks: JSON.parse(lane.dataset.marks), at: 0, shown: -1,
        bar: lane.querySelector('.tf-lane-bar span'), clock: lane.querySelector('.tf-lane-clock') };
    });
    const started = performance.now();
    const step = () => {
      if (mine !== turn || !race.isConnected) return;
      const now = (performance.now() - started) / 1000;
      let going = false;
      for (const lane of lanes) {
        while (lane.at < lane.marks.length && lane.marks[lane.at][0] <= now) lane.at += 1;
        const done = lane.at >= lane.marks.length;
        const share = done ? 1 : lane.at ? lane.marks[lane.at - 1][1] / (lane.marks.at(-1)[1] || 1) : 0;
        going ||= !done;
        lane.lane.classList.toggle('tf-done', done);
        if (lane.shown !== share) {
          lane.shown = share;
          lane.box.replaceChildren(beginning(lane.full, share));
          lane.box.scrollTop = lane.box.scrollHeight;
        }
        const end = lane.marks.length ? lane.marks[lane.marks.length - 1][0] : 0;
        lane.bar.style.width = `${100 * share}%`;
        lane.clock.textContent = `${Math.min(now, end).toFixed(1)} s`;
      }
      if (going) requestAnimationFrame(step);
    };
    step();
  }

  /* A copy of an element's content as far as the first ``share`` of its letters. */
  function beginning(element, share) {
    const range = document.createRange(), texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    range.selectNodeContents(element);
    const letters = Array.from(element.textContent);
    let left = letters.slice(0, share * letters.length).join('').length;
    if (share < 1) {
      while (texts.nextNode() && texts.currentNode.length < left) left -= texts.currentNode.length;
      range.setEnd(...(left ? [texts.currentNode, left] : [element, 0]));
    }
    return range.cloneContents();
  }

  // -- a browser has six connections for one server: a tab in the background lets go of its own, and so does the one
  //    that was used longest ago where more than AWAKE are open -----------------------------------------------------------
  const AWAKE = 4, me = `${Math.random()}`, later = new Set();  // later: tabs that were used after this one
  const tabs = window.BroadcastChannel ? new BroadcastChannel('triforce-chat') : null;
  let asleep = false, bedtime = 0;
  const used = () => { later.clear(); tabs?.postMessage(me); };
  function sleep() {
    if (!byId('asleep')) { setTimeout(sleep, 100); return; }  // Gradio draws it later
    if (!asleep) byId('asleep').click();
    asleep = true;
  }
  function wake() {
    if (document.hidden) return;
    used();
    if (asleep) byId('awake').click();
    asleep = false;
  }
  if (tabs) tabs.onmessage = event => {
    later.add(event.data);
    if (later.size >= AWAKE) sleep();
  };
  document.addEventListener('visibilitychange', () => {
    clearTimeout(bedtime);
    if (document.hidden) bedtime = setTimeout(sleep, 20000);
    else wake();
  });
  window.addEventListener('focus', wake);
  used();

  function begin() {
    const fold = document.querySelector('#statistics > button');
    if (!fold || !document.querySelector('.tf-panes button')) { setTimeout(begin, 50); return; }  // drawn later
    showPane(document.body.dataset.pane);
    fold.ariaExpanded = 'false';  // Gradio's own says nothing of it
  }
  const start = () => { document.body.dataset.pane ??= 'center'; begin(); watchChat(); };
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', start); else start();
})();
