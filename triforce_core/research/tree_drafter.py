"""A drafter that lets a model on any cache grow a tree of guesses, level by level (Sequoia, arXiv 2402.12374).

One pass per level, of the tokens that shall have children; the others are never run. The tree is as the acceptance of
siblings, by rank, makes it worth most; what is accepted is measured while answering. What the document forces (verbatim
quoting) is appended without asking the model, before the tree and behind its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from torch import Tensor

from ..events import RankCount
from ..sampling import Sampler
from ..speculation import tree
from ..speculation.draft import Draft
from ..speculation.drafter import Drafter, DraftStats
from ..speculation.model_drafter import MAX_GUIDED, QUOTE, ModelOnCache
from .growing_model import GrowingModel
from .siblings import draw
from .tree_shape import chains, sequoia

# What siblings are taken for before any was tested, by rank: see ``tree_shape``. The built-in pair's, roughly: of the
# small model, and of the target's own weights over a part of the cache.
SMALL_MODELS = (0.6, 0.12, 0.05, 0.03, 0.02, 0.015, 0.01, 0.008)
A_PARTS = (0.95, 0.03, 0.01, 0.005, 0.003, 0.002)
_WEIGHT = 16.0  # families that this counts for
_REPLAN = 24  # families between two shapes; or as many as tokens in a tree: planning takes time, too


# large: the shape, what it follows from, and the counts that a drafter tells
class TreeDrafter(Drafter):
    """Draws siblings without replacement in Sequoia's shape; with replacement (``replacing``), in SpecInfer's chains.

    follows: the model's cache copies the full one, which has the true keys and values of what it keeps."""

    def __init__(self, model: ModelOnCache, size: int, depth: int, *, tier: str = "draft", follows: bool = False,
                 replacing: bool = False, expected: Sequence[float] = SMALL_MODELS) -> None:
        """size: drafted tokens at most. depth: levels at most. expected: acceptance by rank before any is known."""
        self.model, self.tier, self.follows, self.replacing = model, tier, follows, replacing
        self.size, self.depth, self._expected = size, depth, tuple(expected)
        self.growing = GrowingModel(model)
        # Of a draft: the context position where its tree begins, the tree's root's row, itself.
        self._open: tuple[int, int, Draft] | None = None
        self._seconds, self._passes = 0.0, 0
        self._fresh: dict[int, tuple[int, int]] = {}  # not yet reported: see ``ranks``
        self._start()

    def _start(self) -> None:
        self._known = [(0, 0)] * len(self._expected)
        self._families = 0  # tested since the shape was made
        self.shape = (chains(max(1, self.size // self.depth), self.depth) if self.replacing
                      else sequoia(self._expected, self.size, self.depth))

    @property
    def most_siblings(self) -> int:
        """In a family of any shape that it may choose."""
        return min(self.size, len(self._expected)) if not self.replacing else len(self.shape.families[0])

    def propose(self, context: Sequence[int], num_draft_tokens: int, sampler: Sampler) -> Draft:
        """num_draft_tokens: levels at most."""
        started = perf_counter()
        guided = sampler.guided(context, MAX_GUIDED)
        draft = Draft(guided, [None] * len(guided), [QUOTE] * len(guided))
        self._open = None
        if len(guided) < num_draft_tokens and not (guided and guided[-1] in sampler.stop):
            draft = self._grown([*context, *guided], draft, num_draft_tokens - len(guided), sampler)
            self._open = len(context) + len(guided), len(guided), draft
        self._seconds += perf_counter() - started
        return draft

    def drafted(self, context: Sequence[int], draft: Draft) -> None:
        """``draft`` was grown after ``context``, elsewhere but on this model's cache, and is to be learnt from."""
        self._open = len(context), 0, draft

    def learn(self, truth: Sequence[int], draft: Draft) -> None:
        """``draft``, grown elsewhere, was reviewed: ``truth`` came of it."""
        self._learn(truth, 0, 0, draft)

    def _grown(self, context: list[int], begun: Draft, levels: int, sampler: Sampler) -> Draft:
        """``begun``, which ends ``context``, and the tree behind it."""
        tokens, probs, sources = list(begun.token_ids), list(begun.probs), list(begun.sources)
        parents, root = list(range(-1, len(tokens) - 1)), len(tokens) - 1

        def add(token: int, token_probs: Tensor | None, origin: str, parent: int) -> None:
            tokens.append(token)
            probs.append(token_probs)
            sources.append(origin)
            parents.append(parent)

        def tails() -> list[list[int]]:
            return tree.tails(tokens[root + 1 :], [parent - root - 1 for parent in parents[root + 1 :]])

        kinds = self.shape.families
        growing = [(root, 0)]  # tokens that shall have children, and what each is in the shape (0: the root)
        self.growing.forget()
        logits = self.model.logits(context, ())
        places = {root: self.model.num_staged - 1}
        while True:
            self._passes += 1
            levels -= 1
            behind = tails()
            drawn = draw(logits, context, [behind[node - root] for node, _ in growing],
                         [len(kinds[kind]) for _, kind in growing], sampler, replacing=self.replacing)
            below = []
            for (node, kind), family in zip(growing, drawn, strict=True):
                for child, token, token_probs in zip(kinds[kind], family.token_ids, family.probs, strict=False):
                    if levels and kinds[child + 1] and token not in sampler.stop:
                        below.append((len(tokens), child + 1))
                    add(token, token_probs, self.tier, node)
            if sampler.masks is not None:
                below = [(self._follow(node, tails()[node - root], context, add, sampler, tokens), kind)
                         for node, kind in below]
                below = [(node, kind) for node, kind in below if tokens[node] not in sampler.stop]
            new = _unstaged([node for node, _ in below], parents, places)
            if not below or len(new) > self.model.room:
                chain = parents == list(range(-1, len(parents) - 1))
                return Draft(tokens, probs, sources, parents=[] if chain else parents)
            first = self.model.num_staged
            places |= {node: first + number for number, node in enumerate(new)}
            logits = self.growing.grow([tokens[node] for node in new], [places[parents[node]] for node in new],
                                       len(below))
            growing = below

    @staticmethod
    def _follow(node: int, tail: list[int], context: list[int], add: Callable[[int, None, str, int], None],
                sampler: Sampler, tokens: list[int]) -> int:
        """Behind ``node`` what the document forces there; -> the last of it, or ``node``."""
        for token in sampler.guided([*context, *tail], MAX_GUIDED):
            add(token, None, QUOTE, node)
            node = len(tokens) - 1
        return node

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        if self._open is not None:
            self._learn(context, *self._open)
            self._open = None
        if self.follows:
            self.model.keep(self.model.cache.num_committed + self.model.skipped)
            self.growing.forget()
        else:
            self.growing.agree(context)
        if committed:
            self.model.commit()

    def _learn(self, context: Sequence[int], start: int, row: int, draft: Draft) -> None:
        """By what ``context`` has from ``start`` on: which sibling was it, of each family on the way?"""
        families = tree.families(draft.parents or range(-1, len(draft.token_ids) - 1))
        for true in context[start:]:
            kept = next((node for node in families[row] if draft.token_ids[node] == true), None)
            drawn = [node for node in families[row] if draft.sources[node] == self.tier]
            for rank, node in enumerate(drawn):
                tested, accepted = self._fresh.get(rank, (0, 0))
                self._fresh[rank] = tested + 1, accepted + (node == kept)
                if rank < len(self._known):
                    tested, accepted = self._known[rank]
                    self._known[rank] = tested + 1, accepted + (node == kept)
            self._families += bool(drawn)
            if kept is None:
                break
            row = kept + 1
        if self._families >= max(_REPLAN, self.size) and not self.replacing:
            self._families = 0
            self.shape = sequoia(self.acceptance, self.size, self.depth)

    @property
    def acceptance(self) -> list[float]:
        """By rank: see ``tree_shape``."""
        return [(accepted + hope * _WEIGHT) / (tested + _WEIGHT)
                for hope, (tested, accepted) in zip(self._expected, self._known, strict=True)]

    def reset(self) -> None:
        self.model.reset()
        self.growing.forget()
        self._open = None
        self._start()

    def stats(self) -> DraftStats:
        ranks = tuple(RankCount(self.tier, rank, tested, accepted)
                      for rank, (tested, accepted) in sorted(self._fresh.items()))
        mine = DraftStats((), {self.tier: self._seconds * 1e3}, {self.tier: self._passes}, ranks)
        self._seconds, self._passes, self._fresh = 0.0, 0, {}
        return mine


def _unstaged(ends: Sequence[int], parents: Sequence[int], places: Mapping[int, int]) -> list[int]:
    """What must be run before the model has read all ``ends``, these last: forced tokens come without a pass."""
    between: list[int] = []
    for end in ends:
        run, node = [], parents[end]
        while node not in places:
            run.append(node)
            node = parents[node]
        between += reversed(run)
    return [*between, *ends]
