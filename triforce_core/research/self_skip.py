"""The model as its own draft model: without a part of its layers."""

from __future__ import annotations

from ..model import Llama


def without_some_layers(model: Llama) -> Llama:
    """Every second layer left out but for the first and the last: the model as its own small one (Draft & Verify,
    arXiv 2309.08168, which searches for the best ones to skip, text by text)."""
    last = model.config.num_layers - 1
    return model.with_layers([layer for index, layer in enumerate(model.layers) if index % 2 == 0 or index == last])
