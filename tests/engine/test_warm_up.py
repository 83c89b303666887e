"""Passes run ahead of an answer: they leave everything as it was."""

from __future__ import annotations

import pytest
import torch
from engine.tiny import write_model

from triforce_core.engine.warm_up import any_width, questions
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import load_model
from triforce_core.speculation.model_drafter import ModelOnCache


@pytest.mark.parametrize(("steps", "widths"), [
    (lambda full: any_width(full, [full], 8, 4), {3, 7, 15}),
    (lambda full: questions(full, 20), {3, 8, 16}),  # longer ones have no room
], ids=["of any width", "questions"])
def test_nothing_of_a_rehearsal_stays(tmp_path, steps, widths):
    model = load_model(write_model(tmp_path / "model", layers=2, heads=2, seed=1))
    full, twin = (ModelOnCache(model, FullCache(2, 2, 32, max_tokens=200, dtype=torch.float32)) for _ in range(2))
    ids = torch.arange(3, 63).tolist()
    for on in (full, twin):
        on.feed(ids, 0)
        on.commit()
    watching = object()
    full.observer, ran = watching, []
    run = model.forward
    model.forward = lambda token_ids, *given, **also: (ran.append(len(token_ids)), run(token_ids, *given, **also))[1]
    for step in steps(full):
        step()
    assert set(ran) == widths and full.observer is watching
    full.observer = None
    assert full.length == len(ids) and full.num_staged == 0
    assert torch.equal(full.feed([7, 8], 2), twin.feed([7, 8], 2))


def test_a_full_pass_that_takes_too_long_is_left_out(tmp_path):
    model = load_model(write_model(tmp_path / "model", layers=2, heads=2, seed=1))
    part = ModelOnCache(model, FullCache(2, 2, 32, max_tokens=200, dtype=torch.float32))
    for step in any_width(None, [part], 8, 4):
        step()
    assert part.length == 0
