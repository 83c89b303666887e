"""The decoder's ops: one specification, fast twins, one place that chooses."""

from .dispatch import CPU, REFERENCE, AttentionObserver, Kernels, choose_kernels
from .reference import Linear

__all__ = ["CPU", "REFERENCE", "AttentionObserver", "Kernels", "Linear", "choose_kernels"]
