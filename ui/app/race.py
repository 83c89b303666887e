"""A race's lanes and their comparison as plain JSON. Pure; the replay itself runs in the browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from itertools import zip_longest
from typing import Any

from triforce_core import ConfigError, ModelInfo, SpeculationConfig

from .accumulator import Accumulator
from .settings import Settings

LANES = ("Plain decoding", "TriForce")
THIRD = (("No third lane", ""), ("Without copied text", "ngram=off"),
         ("Copied text only", "ngram=straight, small_model=off, middle_cache=none"),
         ("Small model only", "middle_cache=none, ngram=off"),
         ("Short drafts: 4 tokens per full pass", "gamma2=4"))
THIRD_BAD = "{part} is not a setting of a third lane"
DIFFERS_ROUNDING = ("In {dtype} a pass over several tokens rounds a little differently from a pass over one, and "
                    "a near-tie can fall the other way. Choose 'exact' numbers in Settings for identical words.")
DIFFERS_EXACT = ("With exact numbers this should not happen. Please report it with the document's length, the "
                 "seed and the settings.")


FIXED = ("engine", "verifier", "quotes")  # of a third lane: without them the words could differ
CONTEXT = 60  # characters shown on either side of the first difference


def lanes(settings: Settings, third: str = "") -> tuple[tuple[str, SpeculationConfig], ...]:
    """Return plain decoding, TriForce with these settings, and TriForce with some of them changed, as in "gamma2=6".

    All use the verifier whose words the seed alone decides. Raises ConfigError."""
    fast = settings.speculation(engine="triforce", verifier="coupled")
    found = [(LANES[0], settings.speculation(engine="autoregressive", verifier="coupled")), (LANES[1], fast)]
    if third.strip():
        changes = _changes(third)
        name = next((label for label, text in THIRD if _changes(text) == changes), third.strip())
        found.append((name, replace(fast, **changes)))
    return tuple(found)


def _changes(text: str) -> dict[str, Any]:
    known = [field.name for field in fields(SpeculationConfig) if field.name not in FIXED]
    changes: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in known or not value:
            raise ConfigError(THIRD_BAD.format(part=part), allowed=", ".join(known))
        changes[name] = int(value) if value.isdigit() else value
    return changes


def compare(answers: Sequence[Accumulator], model: ModelInfo | None,
            names: Sequence[str] = LANES) -> dict[str, Any]:
    """Return the lanes for the replay, each with its speed-up over the first and whether its words are the same."""
    made: list[dict[str, Any]] = [
        {"name": name, "text": answer.text, "marks": thin(answer.marks), "figures": asdict(answer.figures()),
         "same": answer.token_ids == answers[0].token_ids, "round": round_cost(answer)}
        for name, answer in zip(names, answers, strict=True)]
    rates = [lane["figures"]["tokens_per_second"] for lane in made]
    for lane, rate in zip(made, rates, strict=True):
        lane["speedup"] = rate / rates[0] if rate and rates[0] else None
    return {
        "lanes": made, "speedup": made[1]["speedup"], "same": made[1]["same"],
        "difference": None if made[1]["same"] else difference(answers[0], answers[1], model),
        "model": model.name if model else "",
        **{name: getattr(model, name) if model else "" for name in ("dtype", "device")},
    }


def plain_rate(kept: Mapping[str, Any] | None, question: str, result: Mapping[str, Any]) -> float:
    """Return the tokens per second of plain decoding in a document's last race; 0 where that did not run on the
    answer's question, pages and model. result: the answer's."""
    if kept is None or kept["question"] != question or kept["model"] != result.get("model"):
        return 0.0
    if "ranges" not in kept or [*map(list, kept["ranges"])] != [*map(list, result.get("ranges", ()))]:
        return 0.0
    return float(kept["lanes"][0]["figures"]["tokens_per_second"])


def round_cost(answer: Accumulator) -> dict[str, float]:
    """Return the mean milliseconds of a round: in the full pass, and in everything else."""
    spent = [stages for _, _, stages, *_ in answer.trace.rounds]
    full = sum(stages.get("verify", 0.0) for stages in spent)
    rounds = max(len(spent), 1)
    return {"verify": full / rounds, "rest": (sum(sum(stages.values()) for stages in spent) - full) / rounds}


def difference(plain: Accumulator, fast: Accumulator, model: ModelInfo | None) -> dict[str, Any]:
    """Return where two answers part, and the likeliest reason."""
    token = next(index for index, (a, b) in enumerate(zip_longest(plain.token_ids, fast.token_ids)) if a != b)
    start = next((i for i, (a, b) in enumerate(zip(plain.text, fast.text, strict=False)) if a != b),
                 min(len(plain.text), len(fast.text)))
    exact = model is not None and model.dtype == "float32"
    return {
        "token": token + 1,
        "before": plain.text[max(0, start - CONTEXT) : start],
        "plain": plain.text[start : start + CONTEXT],
        "fast": fast.text[start : start + CONTEXT],
        "why": DIFFERS_EXACT if exact else DIFFERS_ROUNDING.format(dtype=model.dtype if model else "?"),
    }


def thin(marks: Sequence[tuple[float, int]], most: int = 600) -> list[tuple[float, int]]:
    """Return at most ``most`` of the (seconds, characters) marks and the last one."""
    kept = [*marks[:: max(1, -(-len(marks) // most))]]
    if marks and kept[-1][1] != marks[-1][1]:
        kept.append(marks[-1])
    return [(round(seconds, 3), characters) for seconds, characters in kept]
