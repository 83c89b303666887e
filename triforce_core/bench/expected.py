"""What drafting should gain by its acceptance and costs, to stand beside what it gained (Cascade Speculative Drafting,
arXiv 2312.11462, section 4). Pure.

Letters: a, the share of tested tokens that the full cache accepts; N, tokens of a draft along one path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """What one full pass was given and kept, in tokens along one path of its draft."""

    drafted: int
    accepted: int


def acceptance(blocks: Sequence[Block]) -> float:
    """a: accepted of those tested (all up to the first refusal, and that one); 0 where none was."""
    tested = sum(min(block.drafted, block.accepted + 1) for block in blocks)
    return sum(block.accepted for block in blocks) / tested if tested else 0.0


def tokens_per_pass(blocks: Sequence[Block]) -> float:
    """Expected tokens of a full pass over drafts as long as these were, if each token were accepted with odds a,
    whatever came before: the mean of (1 - a^(N + 1)) / (1 - a). The paper has (1 - a phi(a)^n) / (1 - a), where phi is
    the generating function of an inner block's length: the mean of a^N is phi(a)^n, of the blocks as they came."""
    a = acceptance(blocks)
    if not blocks:
        return 0.0
    if a == 1.0:
        return 1.0 + sum(block.drafted for block in blocks) / len(blocks)
    return (1.0 - a * sum(a**block.drafted for block in blocks) / len(blocks)) / (1.0 - a)


def ewif(blocks: Sequence[Block], drafting: float, plain: float) -> float | None:
    """The paper's expected walltime improvement factor: those tokens over 1 + what drafting costs per full pass.

    drafting: milliseconds of all drafting per full pass; plain: of a pass of plain decoding. The factor leaves out
    what a speed-up contains beside: that a pass over many tokens takes longer, and what the host does between."""
    return tokens_per_pass(blocks) / (1.0 + drafting / plain) if blocks and plain else None


def swi(tokens: int, full_passes: int, full: float, passes: Mapping[str, int], costs: Mapping[str, float]) -> float:
    """The paper's standardised walltime improvement: by passes counted and standard costs, no clock.

    full: cost of a full pass, in the unit of ``costs``, each tier's of a pass. A tier without a cost is free. Its costs
    are parameters (or latencies of another machine); ours the least seconds in which a pass's bytes can be moved:
    with long contexts most of them are no parameters."""
    spent = full_passes * full + sum(made * costs.get(tier, 0.0) for tier, made in passes.items())
    return tokens * full / spent if spent else 0.0
