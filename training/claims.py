"""Sentences made false: one number, name, negation or quantifier exchanged. What the support check learns from.

A change made in a claim and in its passage alike leaves the claim true, so that no word alone says what is false.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

NUMBER, NAME, NEGATION, QUANTIFIER = "number", "name", "negation", "quantifier"
KINDS = (NUMBER, NAME, NEGATION, QUANTIFIER)
_SPELT = "zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty".split()
_NUMBER = re.compile(rf"\d[\d,]*(?:\.\d+)?|\b(?:{'|'.join(_SPELT[2:])})\b", re.IGNORECASE)
_NAME = re.compile(r"(?<![.!?:] )(?<!^)(?<![\"'(\[])\b[A-Z][a-zA-Z]{2,}(?:(?: of| de|)(?: [A-Z][a-zA-Z]+))*")
_HELPS = "is|are|was|were|can|could|may|must|will|would|should|has|have|had|does|do|did|shall|might"
_AUXILIARY = re.compile(rf"\b({_HELPS})\b(?! (?:not|never|no)\b)(?!n't)", re.IGNORECASE)
_NEGATED = re.compile(rf"\b({_HELPS})(?: not|n't)\b|\bcannot\b", re.IGNORECASE)
_EXCHANGED = {
    "all": ("some", "few", "no"), "every": ("no", "hardly any"), "each": ("no",), "most": ("few", "all"),
    "some": ("all", "no"), "many": ("few", "no"), "few": ("many", "most"), "several": ("all", "no"),
    "always": ("never", "sometimes"), "never": ("always", "often"), "often": ("rarely", "never", "always"),
    "usually": ("rarely", "never", "always"), "sometimes": ("always", "never"), "rarely": ("often", "usually"),
    "only": ("not only",), "both": ("neither",), "none": ("all",), "no": ("every",), "any": ("no",),
    "at least": ("at most",), "at most": ("at least",), "more than": ("less than", "exactly"),
    "less than": ("more than",), "before": ("after",), "after": ("before",), "first": ("last",), "last": ("first",),
    "increase": ("decrease",), "increased": ("decreased",), "increases": ("decreases",), "decrease": ("increase",),
    "higher": ("lower",), "lower": ("higher",), "larger": ("smaller",), "smaller": ("larger",), "more": ("less",),
    "less": ("more",), "fewer": ("more",), "minimum": ("maximum",), "maximum": ("minimum",), "above": ("below",),
    "below": ("above",), "required": ("forbidden", "optional"), "optional": ("required",), "allowed": ("forbidden",),
    "may": ("must", "may not"), "must": ("may", "must not"), "can": ("must", "cannot"), "without": ("with",),
    "until": ("since",), "entirely": ("partly",), "partly": ("entirely",), "early": ("late",),
    "reject": ("accept",),
    "rejected": ("accepted",), "accepted": ("rejected",), "agreed": ("refused",), "refused": ("agreed",),
    "enabled": ("disabled",), "disabled": ("enabled",), "true": ("false",), "success": ("failure",),
    "cause": ("prevent",), "causes": ("prevents",), "prevent": ("cause",), "prevents": ("causes",),
    "faster": ("slower",), "slower": ("faster",),
}  # fmt: skip
_QUANTIFIER = re.compile(rf"\b(?:{'|'.join(sorted(_EXCHANGED, key=len, reverse=True))})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Change:
    """old: what stands in the text; new: what takes its place."""

    kind: str
    old: str
    new: str

    def of(self, text: str) -> str:
        """The text with the change at each place where the old words stand by themselves."""
        return re.sub(rf"(?<!\w){re.escape(self.old)}(?!\w)", lambda _: self.new, text)


def change(text: str, kind: str, names: Sequence[str], chance: Random) -> Change | None:
    """One change of this kind, none where the text has no place for it. names: of the document."""
    make = {NUMBER: _number, NAME: lambda text, chance: _name(text, names, chance), NEGATION: _negation,
            QUANTIFIER: _quantifier}[kind]
    made = make(text, chance)
    return made if made and made.of(text) != text else None


def names_in(text: str) -> list[str]:
    """Words with a capital that begin no sentence."""
    return _NAME.findall(text)


def _like(found: str, new: str) -> str:
    return new.capitalize() if found[0].isupper() else new


def _number(text: str, chance: Random) -> Change | None:
    found = [match[0] for match in _NUMBER.finditer(text)]
    if not found:
        return None
    old = chance.choice(found)
    if old.lower() in _SPELT:
        return Change(NUMBER, old, _like(old, chance.choice([word for word in _SPELT[2:] if word != old.lower()])))
    whole = old.replace(",", "")
    if "." in whole:
        value = f"{float(whole) * chance.choice((0.5, 0.8, 1.2, 1.5, 2, 10)):.{len(whole.split('.')[1])}f}"
        return Change(NUMBER, old, value)
    value = int(whole)
    if 1500 < value < 2100 and "," not in old:
        new = value + chance.choice((-20, -10, -3, -2, -1, 1, 2, 3, 5, 10))
    else:
        new = chance.choice((value + 1, value + chance.randint(2, 9), value * 2, value * 10, max(0, value - 1),
                             value + 10, value // 2))
    new += new == value
    return Change(NUMBER, old, f"{new:,}" if "," in old else str(new))


def _name(text: str, names: Sequence[str], chance: Random) -> Change | None:
    found = names_in(text)
    if not found or not names:
        return None
    old = chance.choice(found)
    for new in (chance.choice(names) for _ in range(6)):
        if new not in text and old not in new and len(new.split()) <= len(old.split()) + 1:
            return Change(NAME, old, new)
    return None


def _negation(text: str, chance: Random) -> Change | None:
    negated = [match[0] for match in _NEGATED.finditer(text)]
    if negated and chance.random() < 0.7:
        old = chance.choice(negated)
        return Change(NEGATION, old, "can" if old.lower() == "cannot" else re.sub(r"(?: not|n't)$", "", old))
    found = [match[0] for match in _AUXILIARY.finditer(text)]
    if not found:
        return None
    old = chance.choice(found)
    return Change(NEGATION, old, "cannot" if old.lower() == "can" else f"{old} not")


def _quantifier(text: str, chance: Random) -> Change | None:
    found = [match[0] for match in _QUANTIFIER.finditer(text)]
    if not found:
        return None
    old = chance.choice(found)
    return Change(QUANTIFIER, old, _like(old, chance.choice(_EXCHANGED[old.lower()])))
