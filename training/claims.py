"""Sentences made false: what the support check learns from.

Numbers, names, nouns, negations, quantifiers and words with an opposite are exchanged, two names or numbers trade
places, a reason, a condition or a predicate is another sentence's.

A change made in a claim and in its passage alike leaves the claim true, so that no word alone says what is false.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from training.wordnet import WordNet

NUMBER, NAME, NEGATION, QUANTIFIER, OPPOSITE = "number", "name", "negation", "quantifier", "opposite"
NOUN, MIXTURE, WIDER, CONDITION, CAUSE = "noun", "mixture", "wider", "condition", "cause"
KINDS = (NUMBER, NAME, NEGATION, QUANTIFIER, OPPOSITE, NOUN, MIXTURE, WIDER, CONDITION, CAUSE)
# Those whose result the passage denies; of the others it may only not say so.
DENIED = (NUMBER, NAME, NEGATION, QUANTIFIER, OPPOSITE)
_SPELT = "zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty".split()
_NUMBER = re.compile(rf"\d[\d,]*(?:\.\d+)?|\b(?:{'|'.join(_SPELT[2:])})\b", re.IGNORECASE)
_DIGITS = re.compile(r"\d[\d,]*(?:\.\d+)?")
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
_WIDER = {"may": ("will", "must"), "might": ("will", "must"), "can": ("will always", "must"), "could": ("will", "must"),
          "often": ("in every case", "always"), "usually": ("in every case", "always"), "likely": ("certain",),
          "suggests": ("proves",), "suggest": ("prove",), "typically": ("in every case",), "many": ("all",),
          "generally": ("without exception",), "most": ("all",), "some": ("all", "all of the"), "about": ("exactly",),
          "primarily": ("only",), "mainly": ("only",), "almost": ("fully",), "partly": ("fully",)}  # fmt: skip
_ADDED = ("always", "never", "only", "no longer", "rarely", "entirely", "in every case", "often", "still")
_WIDENED = re.compile(rf"\b(?:{'|'.join(_WIDER)})\b", re.IGNORECASE)
_CONNECTIVES = {
    CAUSE: "because of|because|since|so that|so as to|in order to|due to|as a result of|on account of|to avoid|"
           "to prevent|to ensure|owing to|thanks to|therefore|so",
    CONDITION: "if|unless|when|whenever|once|until|after|before|except|provided that|where|while|only for|only in|"
               "as long as",
}
_CONNECTIVE = {kind: re.compile(rf"(?<=[\w,;] )(?:{words})(?= \w)") for kind, words in _CONNECTIVES.items()}
_REGARDLESS = {"if": "whether or not", "when": "whether or not", "unless": "even if", "until": "even after",
               "after": "before", "before": "after", "once": "before", "except": "including", "only for": "not for",
               "only in": "not in", "as long as": "even if not", "provided that": "even if not"}
_WORD = re.compile(r"(?<![\w'-])[A-Za-z]{3,}(?![\w'-])")
_SIDE_BY_SIDE = re.compile(r"(?:[\s,;/&()]|\b(?:and|or|the|a|an|as well as|both|in|of|on|to|with|between)\b)*")
_PRONOUNS = frozenset("it they he she this these that those there we you i which who what one such".split())
SHORTEST = 3  # words of a reason, a condition, a subject or a predicate


@dataclass(frozen=True)
class Change:
    """new: what takes the place of which words, all at once."""

    kind: str
    new: Mapping[str, str]

    @property
    def added(self) -> list[str]:
        """Words that did not stand in the text before, lower case."""
        return [one.lower() for one in self.new.values() if one not in self.new]

    def of(self, text: str) -> str:
        """The text with the change at each place where the old words stand by themselves."""
        old = "|".join(re.escape(one) for one in sorted(self.new, key=len, reverse=True))
        return re.sub(rf"(?<!\w)(?:{old})(?!\w)", lambda found: self.new[found[0]], text)


class Changer:
    """Makes changes in the sentences of one document, from what else stands in it."""

    def __init__(self, sentences: Sequence[str], net: WordNet, chance: Random) -> None:
        self._net, self._chance = net, chance
        whole = " ".join(sentences)
        self._names = names_in(whole)
        self._nouns = list(dict.fromkeys(word for word in _WORD.findall(whole) if self._is_noun(word)))
        self._tails: dict[str, list[str]] = defaultdict(list)
        self._predicates: list[str] = []
        for sentence in sentences:
            for kind, connective in _CONNECTIVE.items():
                if found := connective.search(sentence):
                    self._tails[kind].append(sentence[found.start() :].rstrip(".!?"))
            if parts := _parts(sentence):
                self._predicates.append(parts[1])

    def _is_noun(self, word: str) -> bool:
        known = self._net.nouns
        return len(word) > 4 and word.islower() and (word in known or word.removesuffix("s") in known)

    def change(self, text: str, kind: str, near: Sequence[str] = ()) -> Change | None:
        """One change of this kind, none where the text has no place for it. near: sentences that stand around it."""
        made = getattr(self, f"_{kind}")(text, " ".join(near))
        return made if made and made.of(text) != text else None

    def _number(self, text: str, near: str) -> Change | None:
        others = [one for one in _DIGITS.findall(near) if one not in text]
        found = _DIGITS.findall(text)
        if found and others and self._chance.random() < 0.4:
            return Change(NUMBER, {self._chance.choice(found): self._chance.choice(others)})
        return _number(text, self._chance)

    def _name(self, text: str, near: str) -> Change | None:
        found = names_in(text)
        others = names_in(near)
        for _ in range(6 if found else 0):
            pool = others if others and self._chance.random() < 0.6 else self._names
            old, new = self._chance.choice(found), self._chance.choice(pool or found)
            if new not in text and old not in new and len(new.split()) <= len(old.split()) + 1:
                return Change(NAME, {old: new})
        return None

    def _negation(self, text: str, near: str) -> Change | None:
        return _negation(text, self._chance)

    def _quantifier(self, text: str, near: str) -> Change | None:
        return _one_of(QUANTIFIER, _QUANTIFIER, _EXCHANGED, text, self._chance)

    def _opposite(self, text: str, near: str) -> Change | None:
        found = [(word, new) for word in _WORD.findall(text) if (new := self._net.opposite_of(word.lower()))]
        if not found:
            return None
        old, new = self._chance.choice(found)
        return Change(OPPOSITE, {old: _like(old, self._chance.choice(new))})

    def _noun(self, text: str, near: str) -> Change | None:
        found = [word for word in _WORD.findall(text) if self._is_noun(word)]
        around = [word for word in _WORD.findall(near) if self._is_noun(word)]
        for _ in range(8 if found and self._nouns else 0):
            pool = around if around and self._chance.random() < 0.5 else self._nouns
            old, new = self._chance.choice(found), self._chance.choice(pool)
            if new not in text and (old[-1] == "s") == (new[-1] == "s") and not self._net.alike(old, new):
                return Change(NOUN, {old: new})
        return None

    def _mixture(self, text: str, near: str) -> Change | None:
        """Two names, two numbers or two nouns trade places; or a predicate is another's."""
        parts = _parts(text)
        if parts and len(self._predicates) > 3 and self._chance.random() < 0.35:
            own = [one[1] for sentence in re.split(r"(?<=[.!?]) ", near) if (one := _parts(sentence))]
            new = self._chance.choice(own if own and self._chance.random() < 0.5 else self._predicates)
            return Change(MIXTURE, {parts[1]: new}) if new not in text else None
        groups = [[found.span() for found in pattern.finditer(text)] for pattern in (_NAME, _DIGITS)]
        groups.append([found.span() for found in _WORD.finditer(text) if self._is_noun(found[0])])
        pairs = []
        for spans in groups:
            for (start, end), (begin, last) in ((one, two) for one in spans for two in spans if one < two):
                one, two = text[start:end], text[begin:last]
                if one not in two and two not in one and (one[-1] == "s") == (two[-1] == "s") \
                        and not _SIDE_BY_SIDE.fullmatch(text[end:begin]) and not self._net.alike(one, two):
                    pairs.append((one, two))
        if not pairs:
            return None
        one, two = self._chance.choice(pairs)
        return Change(MIXTURE, {one: two, two: one})

    def _wider(self, text: str, near: str) -> Change | None:
        made = _one_of(WIDER, _WIDENED, _WIDER, text, self._chance)
        helps = [match[0] for match in _AUXILIARY.finditer(text)]
        if not helps or (made and self._chance.random() < 0.7):
            return made
        old = self._chance.choice(helps)
        return Change(WIDER, {old: f"{old} {self._chance.choice(_ADDED)}"})

    def _cause(self, text: str, near: str) -> Change | None:
        return self._tail(text, CAUSE)

    def _condition(self, text: str, near: str) -> Change | None:
        found = _CONNECTIVE[CONDITION].search(text)
        if found and found[0] in _REGARDLESS and self._chance.random() < 0.4:
            after = " ".join(text[found.end() :].split()[:2])
            return Change(CONDITION, {f"{found[0]} {after}": f"{_REGARDLESS[found[0]]} {after}"})
        return self._tail(text, CONDITION)

    def _tail(self, text: str, kind: str) -> Change | None:
        found = _CONNECTIVE[kind].search(text)
        if not found or not self._tails[kind]:
            return None
        old, new = text[found.start() :].rstrip(".!?"), self._chance.choice(self._tails[kind])
        long = len(old.split()) > SHORTEST and SHORTEST < len(new.split()) < 30
        return Change(kind, {old: new}) if long and new != old else None


def names_in(text: str) -> list[str]:
    """Words with a capital that begin no sentence."""
    return _NAME.findall(text)


def _parts(sentence: str) -> tuple[str, str] | None:
    """Subject and predicate, where the subject is short and names something."""
    found = _AUXILIARY.search(sentence)
    if not found:
        return None
    subject, predicate = sentence[: found.start()].strip(), sentence[found.start() :].rstrip(".!?")
    words = subject.lower().split()
    fits = 0 < len(words) < 9 and not _PRONOUNS & set(words) and "," not in subject
    return (subject, predicate) if fits and SHORTEST < len(predicate.split()) < 40 else None


def _one_of(kind: str, pattern: re.Pattern[str], new: Mapping[str, Sequence[str]], text: str,
            chance: Random) -> Change | None:
    found = [match[0] for match in pattern.finditer(text)]
    if not found:
        return None
    old = chance.choice(found)
    return Change(kind, {old: _like(old, chance.choice(new[old.lower()]))})


def _like(found: str, new: str) -> str:
    return new.capitalize() if found[0].isupper() else new


def _number(text: str, chance: Random) -> Change | None:
    found = [match[0] for match in _NUMBER.finditer(text)]
    if not found:
        return None
    old = chance.choice(found)
    if old.lower() in _SPELT:
        return Change(NUMBER, {old: _like(old, chance.choice([word for word in _SPELT[2:] if word != old.lower()]))})
    whole = old.replace(",", "")
    if "." in whole:
        value = f"{float(whole) * chance.choice((0.5, 0.8, 1.2, 1.5, 2, 10)):.{len(whole.split('.')[1])}f}"
        return Change(NUMBER, {old: value})
    value = int(whole)
    if 1500 < value < 2100 and "," not in old:
        new = value + chance.choice((-20, -10, -3, -2, -1, 1, 2, 3, 5, 10))
    else:
        new = chance.choice((value + 1, value + chance.randint(2, 9), value * 2, value * 10, max(0, value - 1),
                             value + 10, value // 2))
    new += new == value
    return Change(NUMBER, {old: f"{new:,}" if "," in old else str(new)})


def _negation(text: str, chance: Random) -> Change | None:
    negated = [match[0] for match in _NEGATED.finditer(text)]
    if negated and chance.random() < 0.7:
        old = chance.choice(negated)
        return Change(NEGATION, {old: "can" if old.lower() == "cannot" else re.sub(r"(?: not|n't)$", "", old)})
    found = [match[0] for match in _AUXILIARY.finditer(text)]
    if not found:
        return None
    old = chance.choice(found)
    return Change(NEGATION, {old: "cannot" if old.lower() == "can" else f"{old} not"})
