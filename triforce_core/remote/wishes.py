"""How an answer is to be drawn, under the names that each kind of server knows.

What a server refuses it says itself; what it is documented not to look at is refused here, before it would be dropped.
"""

from __future__ import annotations

import json
from typing import Any

from ..config import SamplingParams
from ..errors import ConfigError

_NEUTRAL = SamplingParams()
_WISHES = ("top_k", "min_p", "frequency_penalty", "presence_penalty", "repeat_penalty", "logit_bias", "schema")
_DROPPED = {"Ollama": ("top_k", "min_p", "repeat_penalty", "logit_bias"), "LM Studio": ("min_p",)}
_OWN_DEFAULTS = ("llama-server", "vLLM")  # would draw by others than ours: llama.cpp's min_p is 0.05, vLLM's a model's
_LLAMA_CPP_S = ("llama-server", "LM Studio")  # the others call a repeat_penalty as vLLM does
_CALLED = {"schema": "response_format"}


def as_asked(program: str, sampling: SamplingParams) -> dict[str, Any]:
    """Return the settings as parameters of a chat completion. program: as of ``ServedModel``. Raises ConfigError, with
    the parameter's name first, for one that this kind of server drops silently."""
    wanted = {name: getattr(sampling, name) for name in _WISHES
              if getattr(sampling, name) != getattr(_NEUTRAL, name)}
    for name in wanted:
        if name in _DROPPED.get(program, ()):
            raise ConfigError(f"{_CALLED.get(name, name)} is not among what {program} looks at",
                              remedy="Leave it out, or choose another server under Models.")
    made: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed,
                            "max_tokens": sampling.max_new_tokens}
    if program in _OWN_DEFAULTS:
        made |= {name: getattr(sampling, name) for name in ("top_k", "min_p", "repeat_penalty")}
    made |= wanted
    if "repeat_penalty" in made and program not in _LLAMA_CPP_S:
        made["repetition_penalty"] = made.pop("repeat_penalty")
    if sampling.logit_bias:
        made["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    if made.pop("schema", ""):
        made["response_format"] = _format(json.loads(sampling.schema))
    return made


def _format(schema: Any) -> dict[str, Any]:
    if schema == {"type": "object"}:  # any object: not every server takes so little for a schema
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
