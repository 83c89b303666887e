"""``transformers`` on the same weights, tokens, dtype, threads and device, in a process of its own.

    python -m triforce_core.bench.peer JOB.json     (started by ``run_peer``; prints a JSON line for each method when it
                                                     is done, then one with all)

Greedy, 48 tokens by default. ``generate``: prefill in the same chunks, with its dynamic cache (the default, copied for
every token) and its static one (not copied, but attended whole; compiled only where asked, as that takes minutes); the
fastest counts. Prompt lookup and assisted
generation (with the same draft model, its own default settings) work with a dynamic cache that they fill themselves, in
one pass: with one that is filled already they compute the whole prompt again. Rates count from the first token on."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

_COMPARED, _COMPARED_ROWS = 512, 64  # tokens and rows of the check that both models compute the same
_LOOKUP = 10  # tokens that prompt lookup proposes: what its documentation uses
_ASSISTED, _COMPILED = "assisted generation", "generate, static cache, compiled"


@dataclass(frozen=True, slots=True)
class PeerJob:
    """folder, draft_folder: checkpoints (a compact one is dequantised); shape: what they are grown to, see ``grow``.

    compiled: measure the static cache also as ``generate`` by itself runs it on a GPU, with torch.compile."""

    folder: str
    draft_folder: str | None
    shape: str | None
    max_context: int
    token_ids: tuple[int, ...]
    dtype: str
    device: str
    threads: int
    prefill_chunk: int
    new_tokens: int
    compiled: bool = False


def run_peer(job: PeerJob, tell: Callable[[str], None]) -> dict[str, Any] | None:
    """What ``measure_peer`` returns; None where its process failed (it has said why on stderr). tell: is given each
    method's line."""
    result: dict[str, Any] | None = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(asdict(job)))
        root = Path(__file__).resolve().parents[2]
        search = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
        with subprocess.Popen([sys.executable, "-P", "-m", "triforce_core.bench.peer", str(path)], text=True,
                              stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": search}) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith('{"peer"'):
                    tell(line.strip())
                elif line.startswith("{"):
                    result = json.loads(line)
    return None if process.returncode else result


class _Clock:
    """A streamer that notes when tokens came, and how many at once."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[float, int]] = []

    def put(self, value: Any) -> None:
        self.arrivals.append((perf_counter(), value.numel()))

    def end(self) -> None: ...

    @property
    def tokens_per_second(self) -> float:
        """From the first arrival of new tokens (the very first is the prompt) to the last. 0: all came at once."""
        (first, _), *rest = self.arrivals[1:]
        return sum(count for _, count in rest) / (rest[-1][0] - first) if rest else 0.0


def _generate(model: Any, job: PeerJob, **method: Any) -> dict[str, Any]:
    import torch

    ids = torch.tensor([job.token_ids], device=job.device)
    clock = _Clock()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=job.new_tokens,
                         min_new_tokens=job.new_tokens, do_sample=False, eos_token_id=None, pad_token_id=0,
                         streamer=clock, **method)
    new = out[0, ids.shape[1] :].tolist()
    return {"tokens_per_second": clock.tokens_per_second, "tokens": len(new), "token_ids": new}


def _with_cache(model: Any, job: PeerJob, kind: str, *, compiled: bool = False) -> dict[str, Any]:
    """generate from a "dynamic" or "static" cache that was filled chunk by chunk."""
    import torch
    from transformers import DynamicCache, StaticCache

    ids = torch.tensor([job.token_ids], device=job.device)
    length = ids.shape[1]
    cache: Any = DynamicCache(config=model.config)
    if kind == "static":
        cache = StaticCache(config=model.config, max_cache_len=length + job.new_tokens + 1)
    started = perf_counter()
    for start in range(0, length - 1, job.prefill_chunk):
        stop = min(start + job.prefill_chunk, length - 1)
        model(input_ids=ids[:, start:stop], past_key_values=cache, use_cache=True, logits_to_keep=1,
              cache_position=torch.arange(start, stop, device=job.device))
    if job.device.startswith("cuda"):
        torch.cuda.synchronize()
    prefill = perf_counter() - started
    new = _generate(model, job, past_key_values=cache, disable_compile=not compiled)
    return {**new, "prefill_seconds": prefill}


def measure_peer(job: PeerJob) -> dict[str, Any]:
    """tokens_per_second and token_ids of the faster generate, the prefill, every method's figures, the check of logits.
    """
    import torch
    import transformers

    from .peer_model import compare_logits, our_logits, our_model, peer_model

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(job.threads)
    dtype, start = getattr(torch, job.dtype), list(job.token_ids[:_COMPARED])
    made = (job.shape, job.max_context, job.device, dtype)
    ours = our_logits(our_model(Path(job.folder), *made), start, min(_COMPARED_ROWS, len(start)))
    _free(job)  # before the other model comes
    with torch.inference_mode():
        model = peer_model(Path(job.folder), *made)
        logits = compare_logits(ours, model, start)
        methods: dict[str, Callable[[PeerJob], dict[str, Any]]] = {
            "generate, dynamic cache": lambda job: _with_cache(model, job, "dynamic"),
            "generate, static cache": lambda job: _with_cache(model, job, "static"),
            "prompt lookup": lambda job: _generate(model, job, prompt_lookup_num_tokens=_LOOKUP),
        }
        if job.compiled:
            methods[_COMPILED] = lambda job: _with_cache(model, job, "static", compiled=True)
        if job.draft_folder:
            draft = peer_model(Path(job.draft_folder), job.shape and "llama-68m", *made[1:])
            methods[_ASSISTED] = lambda job: _generate(model, job, assistant_model=draft)
        found, failed = _measure_all(methods, job)
    generates = {name: result for name, result in found.items() if "prefill_seconds" in result}
    assert generates, failed
    best = max(generates, key=lambda name: generates[name]["tokens_per_second"])
    prefill = min(result["prefill_seconds"] for result in generates.values())
    return {"name": "transformers", "version": transformers.__version__, "attention": "sdpa", "logits": logits,
            "tokens_per_second": found[best]["tokens_per_second"], "token_ids": found[best]["token_ids"],
            "generate": best, "prefill_seconds": prefill, "prefill_tokens_per_second": len(job.token_ids) / prefill,
            "context_tokens": len(job.token_ids), "methods": found, "failed": failed}


def _measure_all(methods: dict[str, Callable[[PeerJob], dict[str, Any]]],
                 job: PeerJob) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Each after a short warm-up, and printed when it is done: the next may take the process down. One that fails
    (memory, a method that a version lacks) is told, not hidden."""
    warm = PeerJob(**{**asdict(job), "token_ids": tuple(job.token_ids[:256]), "new_tokens": 4})
    found: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for name, method in methods.items():
        try:
            method(job if name == _COMPILED else warm)  # what is compiled fits one size of cache
            result = method(job)
            if result["tokens_per_second"]:
                found[name] = result
            else:
                failed[name] = f"all {result['tokens']} tokens came at once: too few to time"
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        known = found[name] if name in found else {"failed": failed[name]}
        print(json.dumps({"peer": "transformers", "method": name, **known}), flush=True)
        _free(job)
    return found, failed


def _free(job: PeerJob) -> None:
    import torch

    gc.collect()
    if job.device.startswith("cuda"):
        torch.cuda.empty_cache()


def main(arguments: Sequence[str]) -> None:
    given = json.loads(Path(arguments[0]).read_text())
    print(json.dumps(measure_peer(PeerJob(**{**given, "token_ids": tuple(given["token_ids"])}))))


if __name__ == "__main__":
    main(sys.argv[1:])
