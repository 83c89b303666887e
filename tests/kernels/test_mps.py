"""The ops of devices that have no kernels of ours: torch's, on the CPU here and on a Mac's GPU where there is one."""

from __future__ import annotations

import pytest
import torch

from triforce_core.config import EngineConfig
from triforce_core.device.shard import ALONE
from triforce_core.engine.memory import place
from triforce_core.errors import ConfigError
from triforce_core.kernels import REFERENCE, choose_kernels

METAL = torch.backends.mps.is_available()
DEVICES = ["cpu", pytest.param("mps", marks=pytest.mark.skipif(not METAL, reason="torch has no Metal here"))]
OPS = choose_kernels(torch.device("mps"))


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("op", "sizes", "rest"), [
    ("rms_norm", [(5, 64), (64,)], (1e-5,)), ("add_rms_norm", [(5, 64), (5, 64), (64,)], (1e-5, torch.float32)),
    ("rotate", [(5, 4, 32), (5, 1, 32), (5, 1, 32)], ()), ("swiglu", [(5, 128)], ()), ("geglu", [(5, 128)], ()),
    ("attention", [(5, 4, 32), (2, 40, 32), (2, 40, 32)], (33,)),
    ("attention", [(5, 4, 32), (2, 40, 32), (2, 40, 32)], (33, None, 2, 4))])
def test_an_op_is_the_reference(op: str, sizes: list[tuple[int, ...]], rest: tuple[object, ...], device: str) -> None:
    given = [drawn(*size, seed=seed) for seed, size in enumerate(sizes)]
    expected = getattr(REFERENCE, op)(*(part.clone() for part in given), *rest)
    found = getattr(OPS, op)(*(part.clone().to(device) for part in given), *rest)
    pairs = zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]
    for right, own in pairs:
        assert right is own is None or torch.allclose(own.cpu().float(), right.float(), atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bits", [0, 8])
def test_a_product_is_the_reference(bits: int, device: str) -> None:
    data = drawn(48, 64) if not bits else (drawn(48, 64) * 40).clamp(-127, 127).to(torch.int8)
    scale, bias, x = drawn(48, seed=1).abs() if bits else None, drawn(48, seed=2), drawn(5, 64, seed=3)
    expected = REFERENCE.make_linear(data, scale, bias, torch.float32)(x)
    own = OPS.make_linear(*(None if part is None else part.to(device) for part in (data, scale, bias)), torch.float32)
    torch.testing.assert_close(own(x.to(device)).cpu(), expected, atol=1e-2, rtol=1e-4)


@pytest.mark.skipif(METAL, reason="torch has Metal here")
def test_without_metal_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="no Metal"):
        place(EngineConfig(device="mps"), ALONE)
