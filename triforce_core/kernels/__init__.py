"""The decoder's ops: one specification, fast twins, one place that chooses."""

from .cpu import BATCH_INVARIANT_ROWS
from .dispatch import (
    REFERENCE,
    AttentionObserver,
    Kernels,
    choose_kernels,
    gather_chunks,
    groups_missing,
    heaviest,
    keeps_groups,
    values_transposed,
    write_rows,
)
from .fused import FusedLinear, PreNorm
from .kv_rows import BITS as KV_BITS
from .kv_rows import from_rows, row_bytes, to_rows
from .library import compiled
from .quantized import GROUPS as GROUP_SIZES
from .quantized import (
    HEAD_KIND,
    LEVELS,
    Grouped,
    bytes_per_weight,
    fits,
    grouped_bytes,
    in_blocks,
    join_grouped,
    to_groups,
)
from .quantized import KINDS as WEIGHT_KINDS
from .reference import Dense, Linear
from .wide_attention import choose_wide_attention

__all__ = ["BATCH_INVARIANT_ROWS", "GROUP_SIZES", "HEAD_KIND", "KV_BITS", "LEVELS", "REFERENCE", "WEIGHT_KINDS",
           "AttentionObserver", "Dense", "FusedLinear", "Grouped", "Kernels", "Linear", "PreNorm", "bytes_per_weight",
           "choose_kernels", "choose_wide_attention", "compiled", "fits", "from_rows", "gather_chunks", "grouped_bytes",
           "groups_missing", "heaviest", "in_blocks", "join_grouped", "keeps_groups", "row_bytes", "to_groups",
           "to_rows", "values_transposed", "write_rows"]
