"""Attention mass folded over pages: what the page strip and the passages are drawn from."""

from __future__ import annotations

import pytest
import torch

from triforce_core.engine.answer import AttentionReport
from triforce_core.events import PageSpan


def test_neither_the_sink_nor_what_stands_behind_the_document_has_a_share() -> None:
    report = AttentionReport((PageSpan("i", 0, 16), PageSpan("ii", 16, 40)), 40, 8)
    mass = torch.zeros(2, 3, 6)  # five chunks of the document, one of the question
    mass[:] = torch.tensor([9.0, 1.0, 0.0, 3.0, 0.0, 5.0])
    report.see(mass)
    assert report.add_seen() == report.page_shares == pytest.approx((0.25, 0.75))
    assert report.add_seen() is None
    assert report.top(9) == [(1, 3, 0.75), (0, 1, 0.25)]
    report.see(torch.zeros_like(mass).index_fill(2, torch.tensor(2), 1.0))
    assert report.add_seen() == (0.0, 1.0) and report.top_of_newest(9) == [(1, 2, 1.0)]
    assert report.page_shares == pytest.approx((0.125, 0.875))  # every pass weighs alike
