"""Trees of guesses, grown level by level (Sequoia, arXiv 2402.12374; with chains side by side SpecInfer, 2305.09781).

One pass per level, of the tokens that shall have children; the others are never run. The tree is as the acceptance of
siblings, by rank, makes it worth most; what is accepted is measured while answering. What the document forces (verbatim
quoting) is appended without asking the model, before the tree and behind its branches.

Siblings are drawn without replacement (Sequoia, algorithm 2): each distribution is the one before without the token
drawn, scaled up; or with it (SpecInfer): one distribution. Letters: m families, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch
from torch import Tensor

from ..events import RankCount
from ..sampling import Chance, DrawnChance, Sampler, TensorChance
from ..speculation import tree
from ..speculation.drafter import Draft, Drafter, DraftStats
from ..speculation.model_drafter import MAX_GUIDED, QUOTE, ModelOnCache
from .tree_shape import chains, sequoia
from .tree_verifier import distributions, scores

# Assumed acceptance of siblings, by rank: see ``tree_shape``. The built-in pair's, roughly: of the small model, and of
# the target's own weights over a part of the cache.
SMALL_MODELS = (0.6, 0.12, 0.05, 0.03, 0.02, 0.015, 0.01, 0.008)
A_PARTS = (0.95, 0.03, 0.01, 0.005, 0.003, 0.002)
_WEIGHT = 16.0  # families that this counts for
_REPLAN = 24  # families between two shapes; or as many as tokens in a tree: planning takes time, too


@dataclass(frozen=True, slots=True)
class Family:
    """Hold siblings in the order in which they were drawn. probs: see ``Draft``."""

    token_ids: list[int] = field(default_factory=list)
    probs: list[Tensor | None] = field(default_factory=list)


def draw(logits: Tensor, context: Sequence[int], tails: Sequence[Sequence[int]], counts: Sequence[int],
         sampler: Sampler, *, replacing: bool) -> list[Family]:
    """Return up to ``counts[i]`` guesses at what follows ``context`` and ``tails[i]``, by logits [m, V]."""
    if sampler.coupled:
        # The row's own draw and what would have come next: rows at one position share their noise, so this is what
        # another tier's draw there most likely is.
        most = max(counts)
        best = best_on_tensors(scores(sampler, logits, context, tails), most)
        listed: list[int] = sampler.same(best.flatten().tolist())
        rows = [listed[most * row : most * row + count] for row, count in enumerate(counts)]
        found = [[token for token in row if token >= 0] for row in rows]
        return [Family(tokens, [None] * len(tokens)) for tokens in found]
    probs = distributions(sampler, logits, context, tails)
    if probs.is_cuda:
        numbers = sampler.chance.numbers(len(counts) * max(counts)).to(probs.device)
        return draw_at_once(probs, counts, DrawnChance(numbers), sampler.same, replacing=replacing)
    return [draw_one_by_one(token_probs, count, sampler.chance, replacing=replacing)
            for token_probs, count in zip(probs, counts, strict=True)]


def draw_one_by_one(token_probs: Tensor, count: int, chance: Chance, *, replacing: bool) -> Family:
    """Draw up to ``count`` siblings from token_probs [V].

    A family ends where its distribution has nothing left; Sequoia goes on uniformly then, but a token that the drafter
    gives no chance is no guess (top-p leaves one token in most rows)."""
    family = Family()
    while len(family.token_ids) < count:
        if family.token_ids and not replacing:
            left = token_probs.clone()
            left[family.token_ids[-1]] = 0.0
            total = left.sum()
            if not float(total) > 0.0:
                break
            token_probs = left / total
        family.token_ids.append(chance.pick(token_probs))
        family.probs.append(token_probs)
    return family


def draw_at_once(probs: Tensor, counts: Sequence[int], chance: TensorChance,
                 same: Callable[[list[int]], list[int]] = list, *, replacing: bool) -> list[Family]:
    """Do ``draw_one_by_one`` for each of probs [m, V]; the host waits once. same: see ``Sampler``."""
    drawn = list(siblings_on_tensors(probs, max(counts), chance, replacing=replacing))
    listed = same(torch.cat([tokens for tokens, _ in drawn]).tolist())
    families = [Family() for _ in counts]
    for number, token in enumerate(listed):
        rank, row = divmod(number, len(counts))
        if token >= 0 and rank < counts[row]:
            families[row].token_ids.append(token)
            families[row].probs.append(drawn[rank][1][row])
    return families


def siblings_on_tensors(probs: Tensor, count: int, chance: TensorChance, *,
                        replacing: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Do ``draw_one_by_one`` for each of probs [m, V] without the host.

    Yield by rank tokens [m], -1 where nothing is left, and the probs [m, V] that they were drawn from."""
    for rank in range(count):
        tokens = chance.pick(probs)
        yield torch.where(probs.sum(-1) > 0.0, tokens, -1), probs
        if rank + 1 < count and not replacing:
            probs = _without(probs, tokens)


def _without(probs: Tensor, tokens: Tensor) -> Tensor:
    """Return probs [m, V] without tokens [m], scaled up; a distribution of which nothing is left is zero."""
    left = probs.scatter(1, tokens[:, None], 0.0)
    return left / left.sum(-1, keepdim=True).clamp_min(torch.finfo(left.dtype).tiny)


def best_on_tensors(scores: Tensor, count: int) -> Tensor:
    """Return int64 [m, count], the greatest of scores [m, V]; -1 where nothing more may come."""
    values, found = scores.topk(min(count, scores.shape[-1]), dim=-1)
    best = torch.where(values > -torch.inf, found, -1)
    return torch.nn.functional.pad(best, (0, count - best.shape[1]), value=-1)


class GrowingModel:
    """Know which staged tokens of a model follow which, from one ``agree`` to the next; what is staged elsewhere is a
    chain."""

    def __init__(self, on: ModelOnCache) -> None:
        self.on = on
        self._parents: list[int] = []

    def grow(self, token_ids: Sequence[int], parents: Sequence[int], logits_rows: int) -> Tensor:
        """Stage these tokens, each behind the one that ``parents`` names as staged tokens are counted, these included.

        Return logits [logits_rows, V] of the last of them."""
        on = self.on
        before = on.num_staged
        self._chain_up()
        chain = self._parents == list(range(-1, before - 1)) and min(parents) >= before - 1
        self._parents.extend(parents)
        # Behind a chain, a tree looks the same wherever it stands.
        found, mask = (tree.sees(tuple(parent - before for parent in parents), 0, on.device) if chain
                       else tree.sees(tuple(self._parents), before, on.device))
        return on.feed(token_ids, logits_rows, found, mask)

    def grown_elsewhere(self, token_ids: Sequence[int], parents: Sequence[int]) -> None:
        """Count these as staged by another pass; parents as for ``grow``. A token that is none (-1) is never kept."""
        self._chain_up()
        self.on.staged_elsewhere(token_ids)
        self._parents.extend(parents)

    def agree(self, context: Sequence[int]) -> None:
        """Keep staged tokens as far as they are the context's, but never its last token."""
        self._chain_up()
        staged, last = self.on.staged, -1
        path: list[int] = []
        for true in context[self.on.length - len(staged) : len(context) - 1]:
            matching = (node for node in range(last + 1, len(staged))
                        if self._parents[node] == last and staged[node] == true)
            last = next(matching, len(staged))
            if last == len(staged):
                break
            path.append(last)
        self.on.keep_staged(path)
        self.forget()

    def forget(self) -> None:
        """Take what is staged by now for a chain, or nothing."""
        self._parents.clear()

    def _chain_up(self) -> None:
        self._parents.extend(range(len(self._parents) - 1, self.on.num_staged - 1))


class TreeDrafter(Drafter):
    """Let a model on any cache grow a tree of guesses, level by level.

    Siblings are drawn without replacement in Sequoia's shape; with replacement (``replacing``), in SpecInfer's chains.
    """

    def __init__(self, model: ModelOnCache, size: int, depth: int, *, tier: str = "draft", follows: bool = False,
                 replacing: bool = False, expected: Sequence[float] = SMALL_MODELS) -> None:
        """size: drafted tokens at most. depth: levels at most. follows: the model's cache copies the full one, which
        has the true keys and values of what it keeps. expected: acceptance by rank before any is known."""
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
        """Return the most siblings in a family of any shape that it may choose."""
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
        """Learn from ``draft`` when it is settled: it was grown after ``context``, elsewhere but on this cache."""
        self._open = len(context), 0, draft

    def learn(self, truth: Sequence[int], draft: Draft) -> None:
        """Learn from ``draft``, grown and reviewed elsewhere: ``truth`` came of it."""
        self._learn(truth, 0, 0, draft)

    def _grown(self, context: list[int], begun: Draft, levels: int, sampler: Sampler) -> Draft:
        """Return ``begun``, which ends ``context``, and the tree behind it."""
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
        """Append what the document forces behind ``node``; return the last of it, or ``node``."""
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
        """Count which sibling ``context`` has from ``start`` on, of each family on the way."""
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
        """Return acceptance by rank: see ``tree_shape``."""
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
    """Return the tokens to be run before the model has read all ``ends``, these last: forced ones had no pass."""
    between: list[int] = []
    for end in ends:
        run, node = [], parents[end]
        while node not in places:
            run.append(node)
            node = parents[node]
        between += reversed(run)
    return [*between, *ends]
