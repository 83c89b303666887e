"""Text that spells a model's control tokens: counted wherever a document holds it.

Our own tokenizer never makes a control token out of text (``tokenizer.encode``). A server that is sent the text may, so
``neutralise`` breaks the spelling up before it leaves. The list holds what chat models in use know, not what one knows.
"""

from __future__ import annotations

import re

_SPECIAL = re.compile(
    r"<[|｜][\w ./:▁-]{1,48}[|｜]>"  # ChatML, Llama 3, Phi, DeepSeek
    r"|</?s>|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS)\]|<</?SYS>>"  # Llama 2, Mistral
    r"|<(?:bos|eos|pad|unk|mask|start_of_turn|end_of_turn|start_of_image)>",  # Gemma and others
    re.IGNORECASE)


def count_special(text: str) -> int:
    return sum(1 for _ in _SPECIAL.finditer(text))


def neutralise(text: str) -> str:
    """The same text to a reader, no control token to a tokenizer: a space stands behind the first character."""
    return _SPECIAL.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
