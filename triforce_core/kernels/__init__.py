"""The decoder's ops: one specification, fast twins, one place that chooses."""

from .dispatch import REFERENCE, AttentionObserver, Kernels, choose_kernels, values_transposed
from .reference import Linear

__all__ = ["REFERENCE", "AttentionObserver", "Kernels", "Linear", "choose_kernels", "values_transposed"]
