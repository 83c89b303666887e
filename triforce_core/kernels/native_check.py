"""A library that was just loaded, against ``reference``: a wrong compiler, or a wrong CPU, is found here and not in an
answer."""

from __future__ import annotations

import ctypes

import torch

from . import reference
from .kv_rows import BITS, from_rows, to_rows


def wrong(library: ctypes.CDLL) -> str:
    """Name what it computes wrongly; empty: nothing. Takes milliseconds."""
    from .native import NativeLinear, attention, gather_by, heaviest_by, probs_by

    with torch.inference_mode():
        g = torch.Generator().manual_seed(0)
        keys, values = torch.randn(2, 2, 300, 64, generator=g).bfloat16()
        queries = torch.randn(7, 4, 64, generator=g).bfloat16().float()
        expected, mass = reference.attention(queries, keys, values, 290, None, 3, 8)
        found, own = attention(library, queries, keys, values, 290, None, 3, 8)
        assert mass is not None and own is not None
        alone, _ = attention(library, queries[:1], keys, values, 284, None, 0, 1)
        many = torch.randn(97, 4, 64, generator=g).bfloat16()  # by other instructions where there are such
        wide = attention(library, many, keys, values, 290, None, 0, 1)[0].float()
        if not torch.allclose(wide, reference.attention(many.float(), keys, values, 290, None, 0, 1)[0], atol=2e-2):
            return "attention of many rows"
        if not (torch.allclose(found.float(), expected, atol=2e-2) and torch.allclose(own, mass, atol=1e-3)):
            return "attention"
        for kind, bits in BITS.items():
            rows = to_rows(keys, bits), to_rows(values, bits)
            unpacked = from_rows(rows[0], 64), from_rows(rows[1], 64)
            if not torch.equal(attention(library, queries, *rows, 290, None, 0, 1)[0],
                               attention(library, queries, *unpacked, 290, None, 0, 1)[0]):
                return f"attention over {kind}"
        data = torch.randint(-127, 128, (70, 96), generator=g, dtype=torch.int8)
        scale, x = torch.rand(70, generator=g) / 127, torch.randn(7, 96, generator=g).bfloat16()
        linear = NativeLinear(library, data, scale, None)
        if not torch.allclose(linear(x), reference.make_linear(data, scale, None, torch.float32)(x.float()), atol=1e-3):
            return "products"
        many = torch.randn(97, 96, generator=g).bfloat16()
        expected = reference.make_linear(data, scale, None, torch.float32)(many.float())
        if not torch.allclose(linear(many), expected, atol=1e-3):
            return "products of many rows"
        logits = torch.randn(3, 500, generator=g) * 3
        ordered, order = (logits / 0.7).softmax(-1).sort(-1, descending=True)
        stays = (ordered.cumsum(-1) - ordered < 0.9).float()
        law = torch.zeros_like(logits).scatter(-1, order, ordered * stays)
        if not torch.allclose(probs_by(library, logits, 0.7, 500, 0.9), law / law.sum(-1, keepdim=True), atol=1e-5):
            return "distributions"
        chosen, copied = heaviest_by(library, logits.square(), 20).view(3, 20)[:2], torch.zeros(2, 80, 64).bfloat16()
        expected = torch.zeros_like(copied)
        if not torch.equal(chosen, reference.heaviest(logits.square(), 20)[:2].sort(-1).values):
            return "the choice of chunks"
        chosen = chosen % 75
        gather_by(library, copied, keys, chosen, 4)
        reference.gather_chunks(expected, keys, chosen, 4)
        if not torch.equal(copied, expected):
            return "copies of chunks"
        if not (torch.equal(found[:1], alone) and torch.equal(linear(x)[:1], linear(x[:1]))):
            return "a row depends on its company"
    return ""
