"""What rounded keys and values change: all kinds are asked the same, and the figures are of the right tokens."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from engine.tiny import document, write_model

from triforce_core.bench import kv_loss
from triforce_core.bench.kv_loss import measure, perplexity
from triforce_core.config import EngineConfig
from triforce_core.engine.engine import Engine
from triforce_core.errors import ConfigError
from triforce_core.kernels import KV_BITS


@pytest.fixture(scope="module")
def engine(tmp_path_factory, lengths_given):
    torch.set_num_threads(1)
    folder = write_model(tmp_path_factory.mktemp("model") / "target", layers=2, heads=2, seed=1)
    engine = Engine(EngineConfig(model=str(folder), dtype="float32", threads=1, mode="cpu", kv="same"))
    list(engine.load())
    return engine


def test_perplexity_is_that_of_one_pass(engine):
    list(engine.open_document(document(60)))
    session = engine._session
    ids = session.prompt.token_ids
    session.full.truncate(0)
    logits = session.full.feed(ids.tolist(), len(ids)).log_softmax(-1)
    session.full.commit()
    picked = logits[-100:-1].gather(1, torch.as_tensor(ids[-99:])[:, None])
    assert perplexity(session, 100) == pytest.approx(math.exp(-float(picked.mean())), rel=1e-3)
    assert session.full.length == len(ids)  # as it was


def test_all_kinds_are_asked_the_same(engine):
    row = measure(engine, document(60), 4000, 100, 2, 8)
    assert row["answers"] >= 1 and row["perplexity"] > 1
    for kind in KV_BITS:
        found = row[kind]
        assert 0 <= found["same_free"] <= row["answers"] >= found["same_quoting"] >= 0
        assert math.log(found["perplexity"]) == pytest.approx(math.log(row["perplexity"]), rel=0.05)
        assert found["perplexity"] == pytest.approx(row["perplexity"] * (1 + found["more"]))
    assert row["int8"]["perplexity"] != row["int4"]["perplexity"] != row["perplexity"] != row["int8"]["perplexity"]
    with pytest.raises(ConfigError, match="at least 4,000"):
        measure(engine, document(60), 4000, 2000, 2, 8)


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    book = tmp_path / "book.txt"
    book.write_text("The lamp stood on the table. " * 40, encoding="utf-8")
    told = {"answers": 4, "int4": {"same_quoting": 4, "same_free": 3, "more": 0.01}}
    monkeypatch.setattr(kv_loss.Engine, "load", lambda self: iter(()))
    monkeypatch.setattr(kv_loss, "measure", lambda *given: told)
    assert kv_loss.main(["--document", str(book), "--document", str(book), "--kv", "int4"]) == 0
    *rows, last = capsys.readouterr().out.splitlines()
    assert [json.loads(row) for row in rows] == [told, told]
    assert last == "int4: perplexity +1.00%; the same greedy answers: 8 of 8 with quotations, 6 of 8 in free words"
    assert kv_loss.main(["--document", str(tmp_path / "absent.txt")]) == 2
