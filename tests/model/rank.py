"""One rank of two: runs every model of a folder and saves logits and attention mass (see test_sharded)."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import torch

from triforce_core.device.shard import Shard, meet
from triforce_core.engine.pipeline import AttentionMass
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Llama, load_model

torch.set_num_threads(1)


def run(model: Llama) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [1 + 5, V] of a chunk read and a few tokens verified; mass [layers, H, chunks] of the latter."""
    c = model.config
    cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=256, dtype=model.dtype)
    ids = torch.randint(0, c.vocab_size, (105,), generator=torch.Generator().manual_seed(0))
    observer = AttentionMass(8, 4)
    read = model.forward(ids[:100], cache, logits_rows=1)
    cache.commit()
    verified = model.forward(ids[100:], cache, logits_rows=5, observer=observer)
    assert observer.latest is not None
    return torch.cat((read, verified)), observer.latest


def results(root: Path, shard: Shard) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    found = {}
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        for dtype in (torch.float32, torch.bfloat16):
            found[f"{folder.name} {dtype}"] = run(load_model(folder, dtype=dtype, shard=shard))
    return found


if __name__ == "__main__":
    rank, port, root = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    listener = socket.socket(fileno=int(sys.argv[4])) if rank == 0 else None
    torch.save(results(root, meet(rank, 2, port, False, listener)), root / f"{rank}.pt")
    os._exit(0)  # as the engine's processes leave: gloo's threads may abort an interpreter that is being torn down
