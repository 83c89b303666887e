"""Fixtures of the exactness tests."""

from speculation.conftest import rejection

__all__ = ["rejection"]
