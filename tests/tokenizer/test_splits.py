"""How texts are split where a GGUF file does not say so."""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.models import BPE

from triforce_core.tokenizer.gguf_vocabulary import _PRE, _prepare


def test_a_file_that_names_no_splits_gets_llama_cpps() -> None:
    """The pieces are those that ``unicode_regex_split`` of llama.cpp (llama-cpp-python 0.3.36) gives."""
    tokenizer = Tokenizer(BPE())
    _prepare(tokenizer, _PRE[""])
    found = tokenizer.pre_tokenizer.pre_tokenize_str("I'll pay $1234567, isn't it?\n\n  two  blanks<=3")
    assert [piece for piece, _ in found] == [
        "I", "'", "ll", "Ġpay", "Ġ", "$", "123", "456", "7", ",", "Ġisn", "'", "t", "Ġit", "?", "ĊĊĠ", "Ġtwo", "Ġ",
        "Ġblanks", "<=", "3"]
