"""The strip of the document: where the answer looked."""

from __future__ import annotations

STRIP = "Where the answer looked"
STRIP_ALL = ("Attention, not evidence: how much of the model's attention each page got. The last pages get much of it "
             "whatever is asked. Outlined: quoted in this answer. Click a page to read it.")
STRIP_ABOVE = ("Attention, not evidence: what each page got beyond what it gets whatever is asked. Outlined: quoted in "
               "this answer. Click a page to read it.")
CITED = "quoted in the answer"
STRIP_EMPTY = "Each bar is a page. Bars grow while an answer is written."
STRIP_REMOTE = "Not available: the remote server does not report where it looked. Click a page to read it."
STRIP_PAGE = "Page {label}"
STRIP_PAGE_OF = "{title}, page {label}"  # of one of several documents
NOT_READ = "not in context"
PASSAGES = "Most attended passages"
