/* The words of the answer that is being written, from a connection of their own (ui/server/answer_stream.py). What has
   not changed is not touched: neither drawn again nor taken out of a selection. A hidden page needs no words. */
(() => {
  'use strict';
  let source = null, followed = '';
  const place = () => document.querySelector('#live [data-writing]');

  function follow() {
    const box = document.hidden ? null : place();
    const wanted = box ? `writing/${box.dataset.writing}?tokens=${box.dataset.tokens}` : '';
    if (wanted === followed) return;
    source?.close();
    followed = wanted;
    source = wanted ? new EventSource(wanted) : null;
    if (!source) return;
    const mine = source, fresh = document.createElement('template');
    let html = '';
    mine.onopen = () => { html = ''; };  // also when the browser connects once more: then all is sent again
    mine.onmessage = event => {
      const [start, words, end] = JSON.parse(event.data);
      html = html.slice(0, start) + words + html.slice(html.length - end);
      fresh.innerHTML = html;
      if (mine === source && place()) patch(place(), fresh.content);
    };
    mine.addEventListener('end', () => mine.close());
  }

  function patch(old, fresh) {
    const wanted = [...fresh.childNodes];
    wanted.forEach((node, at) => {
      const there = old.childNodes[at];
      if (there?.tagName === 'DETAILS' && node.tagName === 'DETAILS') node.open = there.open;  // as the reader left it
      if (!there) old.append(node);
      else if (there.isEqualNode(node)) return;
      else if (there.nodeType === Node.TEXT_NODE && node.nodeType === Node.TEXT_NODE) {
        if (node.data.startsWith(there.data)) there.appendData(node.data.slice(there.data.length));
        else there.data = node.data;
      } else if (there.cloneNode(false).isEqualNode(node.cloneNode(false))) patch(there, node);
      else there.replaceWith(node);
    });
    while (old.childNodes.length > wanted.length) old.lastChild.remove();
  }

  function watch() {
    const live = document.getElementById('live');
    if (!live) { setTimeout(watch, 100); return; }
    new MutationObserver(follow)
      .observe(live, { childList: true, subtree: true, attributes: true, attributeFilter: ['data-writing', 'data-tokens'] });
    follow();
  }
  document.addEventListener('visibilitychange', follow);
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', watch); else watch();
})();
