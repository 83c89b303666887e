"""What a draft model promises beside its target on this machine: the share of a fixed text that both guess alike, and
what their passes take. Measured once, and kept beside the costs of passes."""

from __future__ import annotations

from collections.abc import Iterator

from ..assets import BUILTIN_FOLDER
from ..config import EngineConfig, SamplingParams, SpeculationConfig
from ..errors import ConfigError
from ..events import DraftPromise, LoadProgress
from ..kv_cache.full import FullCache
from ..sampling import Sampler
from ..speculation.cost_profile import Profile
from ..speculation.draft_length import best_gain
from ..speculation.draft_length_selector import measure_costs
from ..speculation.model_drafter import ModelOnCache
from .loading import Loaded, full_cache, load
from .pipeline import Pipeline, plan_for
from .plan import prefill_chunk
from .tune import ROOM, open_profile, started, subject

TOKENS, _BEFORE = 200, 256  # of the text: that are guessed, and that stand before them
_TEXT = BUILTIN_FOLDER / "MODEL_CARD.md"
_ROWS = 50  # of one pass over the text: logits of a large vocabulary take their room
_ALONE = SpeculationConfig(middle_cache="none", ngram="off")


class Measure:
    """Load the pair that a config names, and measure what its draft model promises (``check``). Stands where an engine
    would, so that it runs in a process like one."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config

    def check(self) -> Iterator[LoadProgress]:
        """Raise what ``load`` raises, and ConfigError: there is no draft model."""
        for step in load(self.config):
            if isinstance(step, LoadProgress):
                yield step
                continue
            profile = profile_of(step, self.config)
            for share in measure(step, profile):
                yield LoadProgress(f"Trying {step.info.draft_name} as draft model of {step.info.name}", share)


def profile_of(loaded: Loaded, config: EngineConfig) -> Profile:
    """Return what is kept of this machine with this pair."""
    return open_profile(config.measurements, subject(loaded.target.device, loaded.info.dtype, loaded.fingerprint,
                                                     loaded.draft_fingerprint, loaded.shard))


def measure(loaded: Loaded, profile: Profile) -> Iterator[float]:
    """Measure, and keep it in ``profile``; yield the share that is done. Raises ConfigError."""
    if loaded.draft is None:
        raise ConfigError("There is no draft model to be tried", remedy="Name one with --draft-model.")
    text = loaded.tokenizer.encode(_TEXT.read_text(encoding="utf-8"))[: _BEFORE + TOKENS]
    first = [] if loaded.tokenizer.bos_token_id is None else [loaded.tokenizer.bos_token_id]
    context, following = [*first, *text[:_BEFORE]], text[_BEFORE:]
    full = full_cache(loaded, loaded.planner.plan(len(first) + len(text) + ROOM))
    full.feed(context[:-1], 0)
    full.commit()
    chunk = prefill_chunk(EngineConfig(), loaded.target.config.group_size, on_gpu=full.device.type == "cuda",
                          streams=full.cache.streams)
    sampler = Sampler(SamplingParams())
    pipeline = started(loaded, full, plan_for(loaded, full, _ALONE, len(context)), context, chunk, sampler)
    yield 0.1
    costs = measure_costs(pipeline, full, context, None, loaded.shard, sampler)
    assert costs is not None, "nobody cancels"
    pipeline.start(context)
    yield 0.2
    alike = 0
    for done, same in enumerate(_guesses(pipeline, full, context, following, sampler), start=1):
        alike += same
        yield 0.2 + 0.8 * done / len(following)
    accepted = alike / len(following)
    gain = best_gain(costs, pipeline.plan.candidates.gamma2s, 1, accepted)
    profile.keep_promise(DraftPromise(accepted, costs.plain, costs.step, gain))


def _guesses(pipeline: Pipeline, full: ModelOnCache[FullCache], context: list[int], following: list[int],
             sampler: Sampler) -> Iterator[bool]:
    """Yield, token by token of a text, whether the draft model finds the same token the likeliest as its target."""
    read = list(context)
    fed = [context[-1], *following[:-1]]
    for some in (fed[at : at + _ROWS] for at in range(0, len(fed), _ROWS)):
        likeliest = full.feed(some, len(some)).argmax(-1).tolist()
        full.commit()
        for token in likeliest:
            yield pipeline.tiers.propose(read, 1, sampler).token_ids[:1] == [token]
            read.append(following[len(read) - len(context)])
            pipeline.tiers.settle(read, committed=True)
