"""Compiles what the reader's and the page view's processes import: ``python -m triforce_core.documents.bytecode``.

They may write no files, so each of them would compile it anew, for 0.2 to 0.5 seconds. This one opens no document."""

from __future__ import annotations

import importlib
import pkgutil

from . import readers

_OTHERS = ("page_process", "reader_process")
_LATE = ("pypdf", "pypdfium2", "pypdfium2.raw")  # imported where a file needs them


def main() -> None:
    """To import is to compile, where that was not done before."""
    own = [module.name for module in pkgutil.iter_modules(readers.__path__, f"{readers.__name__}.")]
    for name in (*own, *(f"{__package__}.{each}" for each in _OTHERS), *_LATE):
        importlib.import_module(name)


if __name__ == "__main__":
    main()
