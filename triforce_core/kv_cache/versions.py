"""Which saved readings can never be opened again.

Only what this program can prove by itself: a reading of a checkpoint that is not there may be wanted again tomorrow,
when its disk is plugged in. So a reading is dead where its key names an earlier version of what this program computes,
or an earlier built-in model, which came and went with the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KV_VERSION = 1  # raise it when the same ids and weights would give other keys or values
PROMPT_VERSION = 1  # raise it when the same document would give other ids
# Fingerprints of the built-in target's files, oldest first; the last is the one that is there. Add each new one.
BUILTIN_TARGETS = ("9507493e073fa47a0993667ef8dc0daa", "c743958106aaacfd7e0736124de732c7",
                   "3d8d5532337004532c79d3aee1b83bf6")


def is_dead(key: Mapping[str, Any]) -> bool:
    """key: of a reading, as its header has it. A version that is newer, or no number, is another program's."""
    settings = dict(key["settings"])
    return (key["model"] in BUILTIN_TARGETS[:-1] or _older(key["prompt_version"], PROMPT_VERSION)
            or _older(settings.get("kv", ""), KV_VERSION))


def _older(kept: str, now: int) -> bool:
    return kept.isdecimal() and int(kept) < now
