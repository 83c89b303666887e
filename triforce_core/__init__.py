"""TriForce Chat's engine: whole long documents in a language model's context, decoded losslessly by a hierarchy.

This is the only door for the app, scripts and examples. Names are loaded on first use, so importing the package
costs nothing and brings no torch:

    from triforce_core import EngineClient, EngineConfig, read_document

    with EngineClient(EngineConfig()) as engine:
        for event in engine.ask("What is the main claim?", document=read_document("paper.pdf")):
            ...

``metrics`` is a module of pure folds over the events.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
_HOME = {
    "config": ("MEASUREMENTS", "READINGS", "EngineConfig", "SamplingParams", "SpeculationConfig", "is_repo_id",
               "repo_and_file"),
    "assets": ("HANDBOOK",),
    "documents": ("READERS", "read_document"),
    "documents.chapters": ("chapter_ranges", "merge_ranges", "page_ranges", "ranges_text"),
    "documents.document": ("Chapter", "Document", "Page", "Word", "together"),
    "documents.page_images": ("PageImages", "PageLayout", "layout_of_words"),
    "errors": (
        "ConfigError", "ContextTooLongError", "DocumentError", "EncryptedDocumentError", "EngineDiedError",
        "ModelError", "NotEnoughDiskError", "NotEnoughMemoryError", "TriForceError", "UnclearEncodingError",
    ),
    "events": (
        "AnswerStats", "ClassFit", "CuratedModel", "DocumentFit", "DocumentOpened", "DraftChoice",
        "EngineFacts", "Event", "Finished", "Fit", "LEVELS", "LoadProgress", "MachineInfo", "MemoryPlan", "ModelFound",
        "ModelInfo", "ModelOffer", "Passages", "PrefillProgress", "QuoteEvent", "RoundEvent", "Script",
        "SentenceSupport", "TextDelta", "Turn",
    ),
    "kv_cache.snapshot": ("SnapshotStore",),
    "metrics": ("metrics",),
    "surrogates": ("whole_text",),
    "evidence.client": ("EvidenceClient",),
    "remote.engine": ("RemoteEngine",),
    "remote.served": ("PORTS", "ServedModel", "local_servers"),
    "remote.server": ("is_loopback", "stays_here"),
    "worker.client": ("EngineClient",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_MODULE_OF[name]}", __name__)
    value = module if name == _MODULE_OF[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
