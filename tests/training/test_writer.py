"""The writer's training: what a row holds and counts, packed layers against transformers, matrices as in a file."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random

import gguf
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gguf.quants import dequantize, quantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from training import writer_model
from training.asked import Asked, Question
from training.writer_model import MATRICES, Shape, Writer, rounded, to_hugging_face
from training.writer_prefer import preference, step_of
from training.writer_rows import NOT_SAID, START, STOP, Kind, RowMaker

SENTENCES = ["The bridge opened in 1912.", "It is long.", "A toll was asked until 1950.", "Rain fell.", "It was sunny."]


@pytest.fixture
def maker(tmp_path: Path) -> RowMaker:
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(one, normalized=False) for one in (START, STOP)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    none = (np.zeros(0, np.int32), np.zeros(0, np.float32))
    questions = [Question("When did it open?", "", "fact", "natural", "In 1912.", (0,), (0,), none,
                          np.array([2, 0, 1])),
                 Question("Who built it?", "", "unanswerable", "natural", "No builder is named.", (), (), none,
                          np.array([1, 2]))]
    document = Asked("a", "Bridges", False, SENTENCES, [0, 1, 2, 3, 4],
                     [(("Bridges",), (number,)) for number in range(5)], [], questions)
    (tmp_path / "ranked.pkl").write_bytes(pickle.dumps({"documents": [document], "summaries": []}))
    short = [{"held": False, "paragraphs": [SENTENCES[0], SENTENCES[3]], "asked": [(0, "What opened?", "The bridge")]}]
    (tmp_path / "short.pkl").write_bytes(pickle.dumps(short))
    np.save(tmp_path / "text.npy", np.arange(200, dtype=np.uint16) % 200)
    np.save(tmp_path / "ends.npy", np.array([150, 200]))
    return RowMaker(tmp_path, str(tmp_path / "tokenizer.json"), 1)


def test_only_the_answer_counts_and_it_names_its_passage(maker: RowMaker) -> None:
    told = set()
    for _ in range(60):
        row = maker.row(Kind(8192, 8192, (("words", 1.0),), document=0.5, least=512))
        text = maker.encoder.decode(row.ids, skip_special_tokens=False)
        counted = maker.encoder.decode([one for one, weight in zip(row.ids, row.weights, strict=True) if weight],
                                       skip_special_tokens=False)
        asked = text.split(f"{START}user\n")[1:]
        assert counted == "".join(part.split(f"{START}assistant\n")[1].removesuffix("\n") for part in asked)
        for part in asked:
            answer = part.split(f"{START}assistant\n")[1].split(STOP)[0]
            if answer.startswith("In 1912."):
                number = answer.removeprefix("In 1912. ")
                assert any(line.startswith(number) and SENTENCES[0] in line for line in part.split("\n")), part
            told.add("in" if answer.startswith("In 1912.") else answer)
    assert told == {"in", f"{NOT_SAID} No builder is named.", NOT_SAID}


def test_a_step_has_its_size_and_positions_that_rise(maker: RowMaker) -> None:
    ids, weights, positions, ends = maker.step(Kind(4096, 2048, (("words", 0.5), ("text", 0.5)), reach=1.0))
    assert len(ids) == len(weights) == len(positions) == ends[-1] == 4096
    starts = np.concatenate(([0], ends[:-1]))
    for first, last in zip(starts, ends, strict=True):
        assert last - first <= 2048
        assert weights[first] == 0 and positions[first] == 0
        assert (np.diff(positions[first:last]) > 0).all() and positions[first:last].max() < 262_144


def test_matrices_are_rounded_as_a_file_has_them() -> None:
    weight = torch.randn(8, 96)
    stored = quantize(weight.numpy(), gguf.GGMLQuantizationType.Q4_0)
    assert torch.equal(rounded(weight), torch.from_numpy(dequantize(stored, gguf.GGMLQuantizationType.Q4_0)))


def by_rows(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, *_: object, **__: object) -> Tensor:
    """Stands in for the attention of packed rows, which needs a GPU."""
    parts = [F.scaled_dot_product_attention(*(part[first:last].transpose(0, 1) for part in (query, key, value)),
                                            is_causal=True).transpose(0, 1)
             for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True) if last > first]
    return torch.cat(parts)


def test_packed_rows_are_read_as_transformers_reads_each(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    shape = Shape(layers=2, hidden=128, heads=2, kv_heads=1, intermediate=96, vocabulary=64, theta=5000.0)
    sizes = {"q": (128, 128), "k": (64, 128), "v": (64, 128), "o": (128, 128), "gate": (96, 128), "up": (96, 128),
             "down": (128, 96)}
    weights = {f"{number}.{name}": torch.randn(sizes[name]) / 12 for number in range(2) for name in MATRICES}
    weights |= {f"{number}.{name}": 1 + torch.randn(128) / 9 for number in range(2) for name in ("norm1", "norm2")}
    weights |= {"norm": 1 + torch.randn(128) / 9, "embedding": torch.randn(64, 128)}
    weights = {name: tensor.bfloat16().float() for name, tensor in weights.items()}
    model, other = Writer(shape, weights), to_hugging_face(shape, weights).float()
    model._now, model.table = {name: weights[name] for name in model.names}, weights["embedding"]
    monkeypatch.setattr(writer_model, "varlen_attn", by_rows)
    ids, ends = torch.randint(0, 64, (12,)), torch.tensor([0, 5, 12, 12])
    positions = torch.cat((torch.arange(5), torch.arange(7)))
    found = model.read(ids, positions, ends, 7)
    with torch.no_grad():
        wanted = torch.cat([other.model(part[None]).last_hidden_state[0] for part in ids.split([5, 7])])
    assert torch.allclose(found, wanted, atol=1e-4)


def test_a_preference_grows_with_the_reference_and_shrinks_with_the_own_answer() -> None:
    lengths, before = torch.tensor([4, 4]), torch.tensor([-9.0, -8.0])
    same, told = preference(before, before, lengths)
    better, apart = preference(torch.tensor([-7.0, -9.0]), before, lengths)
    worse, mixed = preference(torch.tensor([-9.0, -5.0]), before, lengths)
    assert better < same < worse and (told, apart, mixed) == (0, 1, 0)


def test_pairs_are_packed_with_their_answers_counted_apart() -> None:
    pairs = [([1, 2, 3], [4, 5], [6]), ([7], [8], [9, 8, 7])]
    ids, positions, ends, answer, count = step_of(pairs, Random(1), 64, torch.device("cpu"))
    rows = [ids[low:high].tolist() for low, high in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    wanted = [[read + one, read + other] for read, one, other in pairs]
    assert all(rows[at : at + 2] in wanted for at in range(0, int(count), 2)) and int(count) > 4
    for number in range(int(count)):
        told = ids[answer == number].tolist()
        assert rows[number][-len(told) :] == told and told in [one for pair in pairs for one in pair[1:]]
    assert positions[ends[1]] == 0 and len(ids) == 64
