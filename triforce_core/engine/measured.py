"""What is known of this machine with the loaded models, and the settings that follow from it for a question.

Between ``tuning`` (figures, no models) and a session (models, no figures): names what was measured in words, asks for
a plan, and fills it into what is on "auto". Where chance decides the text, lengths belong to it: plans keep away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..config import SamplingParams, SpeculationConfig
from ..device.capability import read_capability
from ..device.shard import Shard
from ..draft_length.costs import Costs
from ..draft_length.plan import Changes, Lengths, Way, make_plan
from ..draft_length.profile import Records, Subject
from ..draft_length.seen import Pace, Seen
from ..drafters.model import QUOTE, ModelOnCache
from ..drafters.prompt_lookup import NGRAM
from ..events import RoundEvent
from ..kv_cache.full import FullCache
from .build import dials_for
from .draft_model import SmallReading
from .loading import Loaded
from .plan import Dials

_CHANCE = "where chance decides, the text of a seed depends on how it is drafted, so no other settings are tried"
_NEVER = "not measured on this machine yet: python -m triforce_core tune"
# What the drafter attends, in words; comparisons are named as they are.
_ATTENDED = {"retrieval": "the retrieval cache", "none": "the small model alone"}
_TOLD = ("gamma1", "gamma2", "budget", "tree_size", "tree_depth")  # numbers that ranks agree on; then three choices


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan is made for. forces: the document forces quotations; reading: the small model's, if there is one."""

    speculation: SpeculationConfig
    sampling: SamplingParams
    full: ModelOnCache
    context_tokens: int
    forces: bool
    reading: SmallReading | None = None

    @property
    def by_draws(self) -> bool:
        """The text depends on no lengths."""
        return self.sampling.temperature == 0 or self.speculation.verifier == "coupled"

    def kind(self, dials: Dials) -> str:
        """Of answers that are alike in what their drafts are worth."""
        law = f"temperature {self.sampling.temperature:g}, {self.speculation.verifier}"
        return f"{tiers(dials)}; {law}, {'quotes' if self.forces else 'free'}"


class Measured:
    """For one loaded model. Every rank has its own figures and rank 0's plan."""

    def __init__(self, loaded: Loaded, records: Records) -> None:
        self.records, self.words = records, records.words
        self._loaded = loaded

    def costs(self, dials: Dials, full: ModelOnCache, context_tokens: int, law: str) -> Costs | None:
        """Measured before, near enough; None on every rank, or on none. law: see ``Pacing``."""
        known = (self.records.costs(where(full) + law, tiers(dials) + law, context_tokens, dials.gamma1s)
                 if _lasts(dials) else None)
        return known if self._loaded.shard.least(known is not None) else None

    def keep(self, dials: Dials, full: ModelOnCache, context_tokens: int, law: str, costs: Costs) -> None:
        if _lasts(dials):
            self.records.keep_costs(where(full) + law, tiers(dials) + law, context_tokens, costs)
            self.records.write()

    def plan(self, asked: Asked) -> SpeculationConfig:
        """``asked``'s settings with what was planned in the place of every "auto" that it decides."""
        wanted = asked.speculation
        usual = self._dials(asked, wanted)
        if usual.engine == "autoregressive" or not _lasts(usual) or usual.tree != "off" or usual.ngram:
            return wanted  # what was asked for by name is not weighed
        free = self._dials(asked, replace(wanted, pace="on") if wanted.pace == "auto" else wanted)
        each_round = usual.pace != "off" and (len(usual.gamma2s) > 1 or len(usual.gamma1s) > 1 or usual.may_rest)
        lengths = Lengths(
            self._measured_gamma1s(usual, free), free.gamma2s, usual.gamma1, usual.gamma2, usual.has_middle,
            free.most, each_round, may_rest=wanted.pace == "auto" and wanted.gamma2 == "auto",
            may_grow=wanted.tree == "auto")
        ways = self._ways(asked, usual)
        if not self._loaded.shard.least(bool(ways)):
            return wanted
        plan = make_plan(ways, lengths, "" if asked.by_draws else _CHANCE)
        self.words = self.records.words = plan.words
        changes = self._agreed(plan.changes)
        return replace(wanted, **{name: value for name, value in changes.items()
                                  if getattr(wanted, name) == "auto"})  # type: ignore[arg-type]

    def learn(self, asked: Asked, dials: Dials, rounds: Sequence[RoundEvent]) -> None:
        """After an answer to ``asked`` with ``dials``; kept at once."""
        if not _lasts(dials) or dials.engine == "autoregressive":
            return
        seen, costs = self.records.seen(asked.kind(dials)), self._costs(asked, dials)
        spent: dict[int, Pace] = {}
        for event in rounds:
            if not event.gamma2 or (dials.straight and any(count.tier == NGRAM for count in event.tiers)):
                continue  # nothing was drafted, or a copy, of which nothing is decided here
            if dials.tree == "off":
                _learn_chain(seen, dials, event)
            if dials.tree_tier == "middle":  # the small model's siblings say nothing of those that a plan would grow
                for count in event.ranks:
                    seen.learn_rank(count.rank, count.tested, count.accepted)
            pace = _pace(dials, costs, event) if costs is not None and dials.tree == "off" else None
            if pace is not None and event.index:  # the first round warms up
                before = spent.get(event.gamma1, (0.0,) * 4)
                spent[event.gamma1] = before[0] + pace[0], before[1] + pace[1], before[2] + pace[2], before[3] + pace[3]
        for gamma1, pace in spent.items():
            seen.learn_pace(gamma1, pace)
        self.plan(asked)  # what the next one would do, in words
        self.records.write()

    def _costs(self, asked: Asked, dials: Dials) -> Costs | None:
        """With steps of every gamma1 that was measured."""
        known = self.records.gamma1s(tiers(dials))
        return self.records.costs(where(asked.full), tiers(dials), asked.context_tokens, known)

    def _ways(self, asked: Asked, usual: Dials) -> list[Way]:
        """The usual one first; none where its costs are not known. Others only where their drafts were seen to fare."""
        wanted, others = asked.speculation, [dict[str, int | str]()]
        if wanted.budget == "auto" and usual.has_middle:
            others += [{"budget": budget} for budget in other_budgets(usual)]
        if wanted.retrieval_weights == "auto" and usual.retrieval_weights != "same":
            others.append({"retrieval_weights": "same"})
        # Only the middle tier's were timed.
        trees = self.records.trees(where(asked.full), asked.context_tokens) if usual.has_middle else None
        # All of them first: ranks decide dials together, and what each of them knows of costs may differ.
        decided = [(changes, self._dials(asked, replace(wanted, **changes)))  # type: ignore[arg-type]
                   for changes in others]
        ways = []
        for changes, dials in decided:
            costs = self._costs(asked, dials)
            if costs is None or dials.gamma1 not in costs.steps or dials.has_middle != usual.has_middle:
                if not changes:
                    return []
                continue
            ways.append(Way(changes, costs, self.records.seen(asked.kind(dials)), shown(dials, asked.context_tokens),
                            trees))
        return ways

    def _measured_gamma1s(self, usual: Dials, free: Dials) -> tuple[int, ...]:
        """A chain that was given stays; else those whose steps were measured, none where no small model drafts."""
        known = self.records.gamma1s(tiers(usual)) if len(free.gamma1s) > 1 else ()
        return tuple(gamma1 for gamma1 in known if gamma1 in free.gamma1s) or (usual.gamma1,)

    def _dials(self, asked: Asked, speculation: SpeculationConfig) -> Dials:
        return dials_for(self._loaded, asked.full, speculation, asked.context_tokens, asked.reading)

    def _agreed(self, changes: Changes) -> Changes:
        """Rank 0's."""
        if self._loaded.shard.world == 1:
            return changes
        numbers = [int(changes.get(name, -1)) for name in _TOLD]
        choices = [int(name in changes) for name in ("pace", "retrieval_weights", "tree")]
        told = self._loaded.shard.same([*numbers, *choices])
        agreed: dict[str, int | str] = {name: n for name, n in zip(_TOLD, told[: len(_TOLD)], strict=True) if n >= 0}
        paces, same, grows = told[len(_TOLD) :]
        agreed |= {"pace": "on"} if paces else {}
        agreed |= {"retrieval_weights": "same"} if same else {}
        return agreed | ({"tree": "sequoia", "tree_tier": "middle"} if grows else {})


def subject(device: torch.device, dtype: str, fingerprint: str, draft_fingerprint: str, shard: Shard) -> Subject:
    """This machine as far as its speed depends on it, and what was loaded."""
    found = read_capability()
    machine = {"CPU": found.cpu_name, "cores": str(found.physical_cores), "threads": str(torch.get_num_threads()),
               "torch": str(torch.__version__), "numbers": dtype, "device": device.type}
    if device.type == "cuda":
        gpu = found.cuda[device.index or 0]
        machine |= {"GPU": gpu.name, "GPU memory": str(gpu.total_memory)}
    if shard.world > 1:
        machine["rank"] = f"{shard.rank} of {shard.world}"
    return Subject(machine, fingerprint, draft_fingerprint)


def open_records(folder: Path | None, whose: Subject) -> Records:
    """Ranks do not share a file."""
    rank = whose.machine.get("rank", "")
    return Records(folder / rank.replace(" ", "-") if folder is not None and rank else folder, whose)


def in_words(records: Records) -> str:
    """When and at which lengths of context was measured, and what follows, in a line."""
    if not records.measured:
        return f"{records.trouble}; {_NEVER}" if records.trouble else _NEVER
    tokens = [f"{length:,}" for length in records.lengths()]
    listed = " and ".join(filter(None, [", ".join(tokens[:-1]), tokens[-1]]))
    return f"measured {records.measured} at {listed} tokens: {records.words}"


def other_budgets(dials: Dials) -> tuple[int, ...]:
    """Of the middle tier, to compare with its usual one."""
    return dials.budget // 2, dials.budget * 2


def where(full: ModelOnCache) -> str:
    """Where the full cache's keys and values lie."""
    assert isinstance(full.cache, FullCache)
    layers, here = full.cache.num_layers, full.cache.resident_layers
    return "all on the device" if here == layers else f"{here} of {layers} layers on the device"


def tiers(dials: Dials) -> str:
    """All that a step of the drafter takes its time from, and its drafts their worth."""
    small = "no small model"
    if dials.small_model:
        small = f"{'part of the model' if dials.self_skip else 'small model'}, {dials.draft_cache} " \
                f"{dials.sinks} and {dials.window}"
    copies = f", copies first and {dials.ngram_tail} behind" if dials.ngram else ""
    middle = f"{dials.middle_cache} {dials.budget}, {dials.recent} newest, chunks of {dials.chunk_size} by " \
             f"{dials.refresh} every {dials.refresh_every}, weights {dials.retrieval_weights}"
    lenient = f", lenience {dials.lenience:g}" if dials.lenience != 1.0 else ""
    return f"{small}{copies}; {middle if dials.has_middle else 'no middle tier'}{lenient}"


def shown(dials: Dials, context_tokens: int) -> str:
    """What the drafter attends, in words."""
    if not dials.has_middle:
        return _ATTENDED["none"] if dials.small_model else "copies of the text"
    which = _ATTENDED.get(dials.middle_cache, f"the {dials.middle_cache} cache")
    return f"{which}, {dials.budget:,} of {context_tokens:,} tokens"


def _learn_chain(seen: Seen, dials: Dials, event: RoundEvent) -> None:
    seen.learn([origin == QUOTE for origin in event.origins if origin not in ("recovered", "bonus")],
               event.origins[-1] == "recovered")
    below = [count for count in event.tiers if dials.has_middle and count.tier not in (dials.middle_cache, QUOTE)]
    seen.learn_below(sum(count.tested for count in below), sum(count.accepted for count in below))


def _pace(dials: Dials, costs: Costs, event: RoundEvent) -> Pace | None:
    """What a round took and what measured costs give it: see ``Seen.pace``; None where they give nothing."""
    steps = event.passes.get(dials.middle_cache, 0) if dials.has_middle else sum(event.passes.values())
    if event.gamma1 not in costs.steps or not steps:
        return None
    rest = sum(event.milliseconds.get(stage, 0.0) for stage in ("verify", "select", "other"))
    return (sum(event.milliseconds.values()) - rest, steps * costs.steps[event.gamma1], rest,
            costs.verify.at(event.drafted + 1) + costs.choose)


def _lasts(dials: Dials) -> bool:
    """What a step takes depends on the tiers alone: an oracle reads the whole context."""
    return dials.middle_cache != "top-k"


