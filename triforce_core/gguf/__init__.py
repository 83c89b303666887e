"""GGUF, the file format of llama.cpp: what a file says of itself, and where its tensors lie. Knows no decoder."""

from __future__ import annotations

from .file import GGUFFile, StoredTensor, is_gguf, open_gguf, parts_of
from .types import BlockType, type_name

__all__ = ["BlockType", "GGUFFile", "StoredTensor", "is_gguf", "open_gguf", "parts_of", "type_name"]
