"""Tiny tokenizer folders of every kind, trained in a second, for tests."""

from __future__ import annotations

import json
from pathlib import Path

TEXT = [
    "The quick brown fox [INST] jumps over the lazy dog. Page 12 says nothing of it; Mr. Fox was here in 1851.",
    "Every whale is a mammal, and every sailor knows it. \"Is it so?\" asked the mate -- but nobody spoke.",
] * 60  # fmt: skip
PROMPT = {
    "format": 1, "document_start": "<doc>", "document_end": "</doc>", "page_marker": "<page> {label}\n",
    "line_prefix": " ", "user": "<user> {question}\n<assistant>", "assistant_end": "\n", "quote_open": "“",
    "quote_close": "”", "quote_unit": "sentence", "answer_prefix": "“", "stop": ["\n", "<user>", "</s>"],
    "normalise": "ascii-typography-v1",
}  # fmt: skip
CHAT = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

LLAMA_CHAT = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}"
    " {{ m.content }} {{ eos_token }}{{ bos_token }}{% endif %}{% endfor %}"
)


def sentencepiece_folder(folder: Path, prompt: dict | None = PROMPT, dummy_prefix: bool = False) -> Path:
    """A sentencepiece model like the built-in one (with prompt.json), or like the one of Llama (dummy prefix)."""
    import sentencepiece

    marks = ["\n", "<doc>", "</doc>", "<page>", "<user>", "<assistant>", "“", "”"] if prompt else []
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_prefix=str(folder / "tokenizer"), model_type="bpe", vocab_size=420,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
        add_dummy_prefix=dummy_prefix, user_defined_symbols=marks, pad_id=-1, minloglevel=2,
        hard_vocab_limit=False,
    )  # fmt: skip
    if not prompt:
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": LLAMA_CHAT}))
    if prompt:
        (folder / "prompt.json").write_text(json.dumps(prompt))
        (folder / "generation_config.json").write_text('{"eos_token_id": [2, 3]}')
    return folder


def hugging_face_folder(folder: Path, kind: str, chat: str | None = CHAT) -> Path:
    """kind "bytes": byte-level BPE like Llama 3 and Qwen; "spaces": the Llama 2 kind with a prefix space."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    specials = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>", "<|eot_id|>"]
    if kind == "bytes":
        inner = Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=500, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        )
    else:
        inner = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        inner.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>", *specials, *bytes_])
    inner.train_from_iterator(TEXT, trainer)
    state = json.loads(inner.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
    inner = Tokenizer.from_str(json.dumps(state))
    inner.add_tokens([AddedToken("<think>", special=False)])
    outer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")
    outer.chat_template = chat
    outer.save_pretrained(str(folder))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": inner.token_to_id("<|end|>")}))
    return folder


def folder_of(kind: str, folder: Path) -> Path:
    """By name: "tagged" (built-in kind), "llama" (bare sentencepiece), "bytes", "spaces"."""
    if kind == "tagged":
        return sentencepiece_folder(folder)
    if kind == "llama":
        return sentencepiece_folder(folder, prompt=None, dummy_prefix=True)
    return hugging_face_folder(folder, kind)
