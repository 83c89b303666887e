"""PDFium's functions that are called for every piece of a page, as ctypes calls them fastest."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_KINDS = {"p": ctypes.c_void_p, "i": ctypes.c_int, "d": ctypes.c_double}


@cache
def quick(c: Any, name: str, signature: str) -> Any:
    """Return a function that takes and gives addresses as numbers, which saves a third of a call. signature: what it
    returns, then what it takes: "p" an address, "i" a whole number, "d" a fraction."""
    result, *taken = map(_KINDS.__getitem__, signature)
    return ctypes.PYFUNCTYPE(result, *taken)(address(getattr(c, name)))


def address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
