"""Which of the checkpoints here can run, with how much context, and which of them can draft for which; and which
published ones could.

The plan is the engine's own (``engine.loading.choose``): made from shapes, before any weight is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..config import EngineConfig
from ..device.shard import ALONE
from ..engine.loading import choose, fitting
from ..engine.memory import place
from ..errors import ConfigError, ModelError, NotEnoughMemoryError, TriForceError
from ..events import CuratedModel, DraftChoice, Fit, ModelFound, ModelInfo
from ..model import ModelConfig, read_config, stored_form
from ..tokenizer import Tokenizer
from .catalogue import Place, builtin, places
from .curated import USABLE_RATE, memory_rate, suggestions

_CONTEXTS = (8_192, 32_768, 131_072)  # tokens for which it is told what fits
_SMALLER = 2  # a draft model has at most this part of its target's weights: else its passes cost what they save


@dataclass(frozen=True, slots=True)
class _Known:
    """A checkpoint whose shape and tokenizer can be read; or the problem with it."""

    place: Place
    shape: ModelConfig | None = None
    tokenizer: Tokenizer | None = None
    problem: str = ""


class Survey:
    """Stands where an engine would, so that it runs in a process like one: ``check`` lists what there is, then what the
    curated list offers."""

    def __init__(self, config: EngineConfig) -> None:
        """config: how a chosen model would run; ``model`` and ``draft_model`` do not count."""
        self.config = config

    def check(self) -> Iterator[ModelFound | CuratedModel]:
        known = [_look(at) for at in places(self.config.model_folders)]
        drafters = [*known, _look(builtin("draft"))]
        rate, trouble = 0.0, None
        try:
            rate = memory_rate(place(self.config, ALONE)[0])
        except ConfigError as error:  # what is here can be listed without
            trouble = error
        for one in known:
            yield self._judge(one, drafters, rate)
        if trouble is not None:
            raise trouble
        yield from suggestions(self.config, {one.place.name for one in known if one.shape is not None}, rate)

    def _judge(self, one: _Known, drafters: list[_Known], rate: float) -> ModelFound:
        own = one.place
        found = ModelFound(own.name, own.model, own.source, own.nbytes, problem=one.problem)
        if one.shape is None:
            return found
        choices = tuple(DraftChoice(other.place.name, other.place.model, other.shape.num_parameters,
                                    _why_not(one, other))
                        for other in drafters if other.place.folder != own.folder and other.shape is not None)
        fitting = [choice for choice in choices if not choice.why_not]
        # The built-in draft was trained for the built-in target; elsewhere the smallest costs least.
        best = min(fitting, key=lambda choice: (choice.model != own.model, choice.parameters), default=None)
        draft = best.model if best else "none"
        found = replace(found, architecture=one.shape.architecture, parameters=one.shape.num_parameters,
                        max_context=one.shape.longest_context, drafts=choices, draft=draft)
        found = replace(found, fits=self._fits(found, rate))
        found = replace(found, best=best_of(found.fits))
        wanted = self.config.max_context
        context = wanted if wanted == "auto" else min(wanted, one.shape.longest_context)
        try:
            info = self._plan(found, context)
            return replace(found, info=info, longest=self._longest(found))
        except NotEnoughMemoryError as error:
            return replace(found, problem=str(error), longest=self._longest(found))
        except TriForceError as error:
            return replace(found, problem=str(error))

    def _plan(self, found: ModelFound, context: int | str) -> ModelInfo:
        config = replace(self.config, model=found.model, draft_model=found.draft, max_context=context)  # type: ignore[arg-type]
        return choose(config, together=False).info

    def _fits(self, found: ModelFound, rate: float) -> tuple[Fit, ...]:
        config = replace(self.config, model=found.model, draft_model=found.draft)
        contexts = [context for context in _CONTEXTS if context <= found.max_context] or [found.max_context]
        try:
            return tuple(fitting(config, contexts, rate))
        except TriForceError:  # the plan will say what is wrong
            return ()

    def _longest(self, found: ModelFound) -> int:
        try:
            info = self._plan(found, "auto")
        except NotEnoughMemoryError:
            return 0
        return info.plan.longest if info.plan else 0


def best_of(fits: Sequence[Fit]) -> Fit | None:
    """The way in which to load a model here: the one with the least rounding among those that take the longest context
    at a usable speed; where none is usable, the fastest. None: nothing fits."""
    reach = max((fit.context for fit in fits if fit.mode), default=0)
    longest = [fit for fit in fits if fit.mode and fit.context == reach]
    usable = [fit for fit in longest if fit.tokens_per_second >= USABLE_RATE]
    return usable[0] if usable else max(longest, key=lambda fit: fit.tokens_per_second, default=None)


def _look(at: Place) -> _Known:
    try:
        shape, tokenizer = read_config(at.folder), Tokenizer(at.tokenizer)
        stored_form(at.folder)  # opens the weights' table of contents: are they there, and whole?
    except ModelError as error:
        return _Known(at, problem=str(error))
    return _Known(at, shape, tokenizer)


def _why_not(target: _Known, draft: _Known) -> str:
    """Why one model shall not draft for another; "" if it may."""
    assert target.shape and target.tokenizer and draft.shape and draft.tokenizer
    mine, its = target.tokenizer, draft.tokenizer
    if mine.vocab_size != its.vocab_size:
        return f"another vocabulary: {its.vocab_size:,} pieces, not {mine.vocab_size:,}"
    if not mine.same_vocabulary(its):
        return f"another vocabulary: as many pieces ({its.vocab_size:,}), but not the same ones"
    if draft.shape.num_parameters * _SMALLER > target.shape.num_parameters:
        sizes = millions(draft.shape.num_parameters), millions(target.shape.num_parameters)
        return f"not small enough: {sizes[0]} weights for {sizes[1]}"
    return ""


def millions(count: int) -> str:
    return f"{count / 1e9:.1f} billion" if count >= 1e9 else f"{count / 1e6:.1f} million"
