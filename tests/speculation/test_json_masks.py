"""JSON by a schema: what is written keeps it, and speculation has the law of plain decoding under the same masks."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from speculation.probs import BOUND, START, deviation, models, tiers
from speculation.toy import Settling

from triforce_core.assets import BUILTIN_FOLDER
from triforce_core.config import SamplingParams
from triforce_core.errors import ConfigError
from triforce_core.speculation.model_drafter import ModelDrafter
from triforce_core.tokenizer import Tokenizer

pytest.importorskip("llguidance", reason="llguidance is not installed")

from triforce_core.sampling.grammar import JsonMasks

SHIP = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "ships": {"type": "integer"},
                                         "kind": {"enum": ["brig", "sloop"]}},
        "required": ["name", "ships", "kind"], "additionalProperties": False}


class Toy:
    """Six tokens, the last of which ends an answer."""

    _texts = (b"[", b"]", b"1", b"2", b", ", b"")
    vocab_size, bos_token_id = len(_texts), None

    def token_bytes(self, token_id: int) -> bytes:
        return self._texts[token_id]

    def encode(self, text: str) -> list[int]:
        return [self._texts.index(letter.encode()) for letter in text]


TOY = Toy()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(BUILTIN_FOLDER)


def masks(tokenizer: Tokenizer, schema: dict = SHIP, start: int = 2) -> JsonMasks:
    return JsonMasks(tokenizer, json.dumps(schema), start, tokenizer.stop_token_ids)


@pytest.mark.parametrize("params", [SamplingParams(temperature=1.0), SamplingParams(temperature=0.7, top_p=0.8)],
                         ids=["T1", "T0.7 top-p 0.8"])
@pytest.mark.parametrize(("gamma1", "gamma2"), [(None, 3), (0, 2), (1, 2), (2, 2)])
def test_every_tier_sees_the_same_masks(params, gamma1, gamma2, rejection):
    schema = {"type": "array", "items": {"enum": [1, 2, 12]}, "minItems": 1, "maxItems": 2}
    target, retrieval, small = models(vocabulary=TOY.vocab_size)
    held = JsonMasks(TOY, json.dumps(schema), len(START), frozenset({5}))
    drafter = ModelDrafter(Settling(small)) if gamma1 is None else tiers(retrieval, small, gamma1)
    assert deviation(target, drafter, gamma2, params, held) < BOUND


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_drawn_is_json_of_the_schema(tokenizer, seed):
    rng, held, context = np.random.default_rng(seed), masks(tokenizer), [1, 1]
    while context[-1] not in tokenizer.stop_token_ids:
        (ids,) = held.allowed(context, ())
        forced = held.guided(context, 5)
        assert (len(ids) == 1) == bool(forced) and all(token in ids for token in forced[:1])
        # Ends, digits and marks come seldom among tens of thousands.
        context.append(int(rng.choice(ids[:20] if rng.random() < 0.5 else ids)))
        assert len(context) < 600
    found = json.loads(tokenizer.decode(context[2:-1]))
    assert list(found) == ["name", "ships", "kind"] and isinstance(found["ships"], int)
    assert len(found["name"]) <= 12 and found["kind"] in ("brig", "sloop")
    assert held.allowed([*context, 9], ())[0].tolist() == sorted(tokenizer.stop_token_ids), "nothing comes behind it"


def test_tiers_may_ask_in_any_order(tokenizer):
    """Rows follow from the tokens before them alone, also behind one that was not allowed."""
    whole = tokenizer.encode('{"name": "Ness", "ships": 201, "kind": "brig"}')
    once, rng = masks(tokenizer), np.random.default_rng(0)
    for _ in range(40):
        end, ahead = int(rng.integers(len(whole) + 1)), int(rng.integers(4))
        context, draft = [1, 1, *whole[:end]], whole[end : end + ahead]
        if draft and rng.random() < 0.3:
            draft[-1] = 500
        rows = once.allowed(context, draft)
        assert len(rows) == len(draft) + 1
        for row, expected in zip(rows, masks(tokenizer).allowed(context, draft), strict=True):
            assert row.tolist() == expected.tolist()


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"type": "object", "properties": {"a": {"not": {}}}}])
def test_a_schema_that_cannot_be_followed_is_refused(tokenizer, schema):
    with pytest.raises(ConfigError, match="response_format"):
        masks(tokenizer, schema)


def test_without_the_package_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ConfigError, match="llguidance") as caught:
        JsonMasks(Toy(), "{}", 0, frozenset({5}))  # a vocabulary that was not met before
    assert caught.value.remedy == "pip install llguidance"
