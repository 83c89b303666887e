"""A drafter that lets a model on any cache grow a tree of guesses, level by level (Sequoia, arXiv 2402.12374).

One pass per level, of the tokens that shall have children; the others are never run. The tree is as the acceptance of
siblings, by rank, makes it worth most; what is accepted is measured while answering. Tokens that the document forces
(verbatim quoting) come first, in a chain that needs no pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from torch import Tensor

from ..events import RankCount
from ..sampling import Sampler
from ..speculation import tree
from ..speculation.draft import Draft
from ..speculation.drafter import Drafter
from ..speculation.tree_shape import chains, sequoia
from .chain import MAX_FORCED, QUOTE, ModelOnCache
from .siblings import draw

# What siblings are taken for before any was tested, by rank: see ``tree_shape``. Measured with the built-in pair.
EXPECTED = (0.6, 0.12, 0.05, 0.03, 0.02, 0.015, 0.01, 0.008)
_WEIGHT = 16.0  # families that this counts for
_REPLAN = 24  # families between two shapes; or as many as tokens in a tree: planning takes time, too


class TreeDrafter(Drafter):
    """Draws siblings without replacement in Sequoia's shape; with replacement (``replacing``), in SpecInfer's chains.

    follows: the model's cache copies the full one, which has the true keys and values of what it keeps."""

    def __init__(self, model: ModelOnCache, size: int, depth: int, *, tier: str = "draft", follows: bool = False,
                 replacing: bool = False, expected: Sequence[float] = EXPECTED) -> None:
        """size: drafted tokens at most. depth: levels at most. expected: acceptance by rank before any is known."""
        self.model, self.tier, self._follows, self._replacing = model, tier, follows, replacing
        self._size, self._depth, self._expected = size, depth, tuple(expected)
        # Of a tree: the context position where it begins, its root's row, its tokens and families.
        self._open: tuple[int, int, list[int], list[list[int]]] | None = None
        self._seconds, self._passes = 0.0, 0
        self._fresh: dict[int, tuple[int, int]] = {}  # not yet reported: see ``ranks``
        self._start()

    def _start(self) -> None:
        self._known = [(0, 0)] * len(self._expected)
        self._families = 0  # tested since the shape was made
        self.shape = (chains(max(1, self._size // self._depth), self._depth) if self._replacing
                      else sequoia(self._expected, self._size, self._depth))

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        """num_draft_tokens: levels at most."""
        started = perf_counter()
        forced = sampler.forced(context, MAX_FORCED)
        draft = Draft(forced, [None] * len(forced), [QUOTE] * len(forced))
        self._open = None
        if len(forced) < num_draft_tokens and not (forced and forced[-1] in sampler.stop):
            draft = self._grown([*context, *forced], draft, num_draft_tokens - len(forced), sampler)
            self._open = len(context) + len(forced), len(forced), draft.token_ids, draft.families
        self._seconds += perf_counter() - started
        return draft

    def _grown(self, context: list[int], begun: Draft, levels: int, sampler: Sampler) -> Draft:
        """``begun``, which ends ``context``, and the tree behind it."""
        tokens, laws, origins = list(begun.token_ids), list(begun.laws), list(begun.origins)
        parents, root = list(range(-1, len(tokens) - 1)), len(tokens) - 1
        kinds = self.shape.families
        growing = [(root, 0)]  # tokens that shall have children, and what each is in the shape (0: the root)
        logits = self.model.logits(context, ())
        places = {root: self.model.num_staged - 1}
        while True:
            self._passes += 1
            levels -= 1
            tails = tree.tails(tokens[root + 1 :], [parent - root - 1 for parent in parents[root + 1 :]])
            drawn = draw(logits, context, [tails[node - root] for node, _ in growing],
                         [len(kinds[kind]) for _, kind in growing], sampler, replacing=self._replacing)
            below = []
            for (node, kind), family in zip(growing, drawn, strict=True):
                for child, token, law in zip(kinds[kind], family.token_ids, family.laws, strict=False):
                    if kinds[child + 1] and token not in sampler.stop:
                        below.append((len(tokens), child + 1))
                    tokens.append(token)
                    laws.append(law)
                    origins.append(self.tier)
                    parents.append(node)
            below = below[: max(0, self.model.room)]
            if not below or not levels:
                return Draft(tokens, laws, origins, parents=[] if parents == list(range(-1, len(parents) - 1)) else
                             parents)
            logits = self._pass(below, tokens, parents, places)
            growing = below

    def _pass(self, growing: list[tuple[int, int]], tokens: list[int], parents: list[int],
              places: dict[int, int]) -> Tensor:
        first = self.model.num_staged
        places |= {node: first + number for number, (node, _) in enumerate(growing)}
        return self.model.grow([tokens[node] for node, _ in growing], [places[parents[node]] for node, _ in growing],
                               len(growing))

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        if self._open is not None:
            self._learn(context, *self._open)
            self._open = None
        if self._follows:
            self.model.keep(self.model.cache.num_committed + self.model.skipped)
        else:
            self.model.agree(context)
        if committed:
            self.model.commit()

    def _learn(self, context: Sequence[int], start: int, row: int, tokens: list[int],
               families: list[list[int]]) -> None:
        """By what ``context`` has from ``start`` on: which sibling was it, of each family on the way?"""
        for true in context[start:]:
            kept = next((node for node in families[row] if tokens[node] == true), None)
            for rank, node in enumerate(families[row]):
                tested, accepted = self._fresh.get(rank, (0, 0))
                self._fresh[rank] = tested + 1, accepted + (node == kept)
                if rank < len(self._known):
                    tested, accepted = self._known[rank]
                    self._known[rank] = tested + 1, accepted + (node == kept)
            self._families += bool(families[row])
            if kept is None:
                break
            row = kept + 1
        if self._families >= max(_REPLAN, self._size) and not self._replacing:
            self._families = 0
            self.shape = sequoia(self.acceptance, self._size, self._depth)

    @property
    def acceptance(self) -> list[float]:
        """By rank: see ``tree_shape``."""
        return [(accepted + hope * _WEIGHT) / (tested + _WEIGHT)
                for hope, (tested, accepted) in zip(self._expected, self._known, strict=True)]

    def reset(self) -> None:
        self.model.reset()
        self._open = None
        self._start()

    def milliseconds(self) -> dict[str, float]:
        spent, self._seconds = self._seconds * 1e3, 0.0
        return {self.tier: spent}

    def passes(self) -> dict[str, int]:
        made, self._passes = self._passes, 0
        return {self.tier: made}

    def ranks(self) -> list[RankCount]:
        found = [RankCount(self.tier, rank, tested, accepted)
                 for rank, (tested, accepted) in sorted(self._fresh.items())]
        self._fresh = {}
        return found
