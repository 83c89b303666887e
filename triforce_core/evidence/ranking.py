"""Rank the sentences of a document as answers to a question, and say how likely it is that none answers.

A small network over the features of ``sentence_index`` chooses; an encoder then compares vectors of the best with the
question's (a bi-encoder, arXiv 1908.10084) and reads the best of those together with it (a cross-encoder, arXiv
1901.04085), with the same weights, some milliseconds a sentence. Made from all-MiniLM-L6-v2 (Apache 2.0; arXiv
2002.10957). All are fitted on questions that people wrote (``training/prior.py``, ``training/reranker.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..assets import WORDS_FOLDER
from .line_roles import Role
from .question import WORD, Asks, asks, names
from .sentence_index import SentenceIndex

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_RERANKER_FILE = WORDS_FOLDER / "reranker.npz"
_QUESTION, _SENTENCE, _AROUND, _HEADING = 28, 56, 28, 12  # pieces of each, at most
GROUP = 64  # weights that share a scale
_AT_ONCE = 32  # sentences that vectors are made of at once
_EPS = 1e-12  # of BERT's norms


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence, the heading above it, and the sentence before it on its line; "" where there is none."""

    sentence: str
    heading: str = ""
    before: str = ""


class Pairs:
    """Questions and passages as the numbers of the pieces that the encoder reads: a question's, then a passage's."""

    def __init__(self, pieces: Sequence[str]) -> None:
        """pieces: of WordPiece (arXiv 1810.04805), among them "[CLS]", "[SEP]" and "[UNK]"; "[PAD]" is the first."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # models that do not quote do without

        numbers = {piece: number for number, piece in enumerate(pieces)}
        self._first, self._end = numbers["[CLS]"], numbers["[SEP]"]
        self._tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))
        self._tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def questions(self, texts: Sequence[str], before: str = "") -> list[list[int]]:
        """[CLS] the end of the question before, if there is room for it, question [SEP]"""
        former, *asked = self._pieces([before, *texts])
        rows = []
        for question in asked:
            room = max(0, _QUESTION - len(question))
            rows.append([self._first, *former[len(former) - min(room, len(former)) :], *question[:_QUESTION],
                         self._end])
        return rows

    def passages(self, passages: Sequence[Passage]) -> list[list[int]]:
        """sentence [SEP] heading [SEP] the end of the sentence before [SEP]"""
        texts = list({text: None for one in passages for text in (one.sentence, one.heading, one.before)})
        pieces = dict(zip(texts, self._pieces(texts), strict=True))
        rows = []
        for one in passages:
            heading, before = pieces[one.heading][:_HEADING], pieces[one.before][:_SENTENCE]
            around = [*heading, *([self._end, *before[len(heading) + 1 - _AROUND :]] if before else [])]
            rows.append([*pieces[one.sentence][:_SENTENCE], self._end, *around, self._end])
        return rows

    def sentences(self, texts: Sequence[str]) -> list[list[int]]:
        """[CLS] sentence [SEP]: what vectors are made of."""
        return [[self._first, *pieces[:_SENTENCE], self._end] for pieces in self._pieces(texts)]

    def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
        # Half a surrogate pair is no text to the tokenizer.
        whole = [text.encode(errors="replace").decode() for text in texts]
        return [text.ids for text in self._tokenizer.encode_batch(whole, add_special_tokens=False)]


def batch(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[Tensor, Tensor, Tensor]:
    """(pieces, segments, here) [rows, longest], of rows (question, passage): 1 for the passage and what fills up after
    it; whether a piece stands there."""
    import torch

    both = [[*question, *passage] for question, passage in rows]
    longest = max(map(len, both))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in both])
    here = torch.arange(longest) < torch.tensor([len(row) for row in both])[:, None]
    segments = (torch.arange(longest) >= torch.tensor([len(question) for question, _ in rows])[:, None]).long()
    return ids, segments, here


class Reranker:
    """A BERT encoder (arXiv 1810.04805) and a linear layer on its first position."""

    def __init__(self, pairs: Pairs, weights: dict[str, Tensor], heads: int) -> None:
        """weights: by the names of transformers' ``BertModel``, ``head.weight`` and ``head.bias`` beside them."""
        self._pairs, self._weights, self._heads = pairs, weights, heads
        self._layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> Reranker:
        """Return the one in ``assets/words``, in the type that this machine multiplies fastest."""
        import torch

        from ..device.capability import choose_dtype, read_capability

        return cls.load(_RERANKER_FILE, getattr(torch, choose_dtype(read_capability(), "cpu")))

    @classmethod
    def load(cls, file: Path, dtype: torch.dtype) -> Reranker:
        """Load what ``training/reranker.py`` wrote."""
        with np.load(file) as stored:
            arrays = dict(stored)
        pieces, heads = arrays.pop("pieces").tobytes().decode().split("\n"), int(arrays.pop("heads"))
        return cls(Pairs(pieces), unpacked(arrays, dtype), heads)

    def scores(self, question: str, passages: Sequence[Passage], before: str = "") -> np.ndarray:
        """float32 [passages]: nats in favour of each against "nothing answers this". before: the question before."""
        import torch

        if not passages:
            return np.zeros(0, np.float32)
        asked = self._pairs.questions([question], before)[0]
        with torch.inference_mode():
            return self._score(*batch([(asked, passage) for passage in self._pairs.passages(passages)])).numpy()

    def vectors(self, sentences: Sequence[str]) -> np.ndarray:
        """float32 [sentences, width], each of length 1, and but for rounding the same in any company."""
        return self._vectors_of(self._pairs.sentences(sentences))

    def question_vector(self, question: str, before: str = "") -> np.ndarray:
        """float32 [width], of length 1: its product with a sentence's vector says how near they are. before: the
        question before."""
        vector: np.ndarray = self._vectors_of(self._pairs.questions([question], before))[0]
        return vector

    def _vectors_of(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        import torch

        found = np.zeros((len(rows), self._weights["head.weight"].shape[1]), np.float32)
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))  # alike in length: little to fill up
        with torch.inference_mode():
            for start in range(0, len(order), _AT_ONCE):
                some = order[start : start + _AT_ONCE]
                found[some] = self._mean(*batch([(rows[row], ()) for row in some])).numpy()
        return found

    def _mean(self, ids: Tensor, segments: Tensor, here: Tensor) -> Tensor:
        """fp32 [rows, width], of a ``batch``: the mean over the pieces of each, of length 1."""
        import torch.nn.functional as F

        read = self._encoded(ids, segments, here).float()
        return F.normalize((read * here[..., None]).sum(1), dim=-1)

    def _score(self, ids: Tensor, segments: Tensor, here: Tensor) -> Tensor:
        """fp32 [rows], of a ``batch``."""
        import torch.nn.functional as F

        first = self._encoded(ids, segments, here)[:, 0].float()
        return F.linear(first, self._weights["head.weight"].float(), self._weights["head.bias"].float())[:, 0]

    def _encoded(self, ids: Tensor, segments: Tensor, here: Tensor) -> Tensor:
        """[rows, longest, width], of a ``batch``."""
        import torch.nn.functional as F

        weights = self._weights

        def linear(x: Tensor, name: str) -> Tensor:
            return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

        def norm(x: Tensor, name: str) -> Tensor:
            return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], _EPS)

        x = (weights["embeddings.word_embeddings.weight"][ids]
             + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
             + weights["embeddings.token_type_embeddings.weight"][segments])
        x = norm(x, "embeddings.LayerNorm")
        for layer in range(self._layers):
            at = f"encoder.layer.{layer}"
            q, k, v = (linear(x, f"{at}.attention.self.{name}").unflatten(-1, (self._heads, -1)).transpose(1, 2)
                       for name in ("query", "key", "value"))
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=here[:, None, None]).transpose(1, 2).flatten(2)
            x = norm(x + linear(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
            inner = F.gelu(linear(x, f"{at}.intermediate.dense"))
            x = norm(x + linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        return x


def unpacked(stored: dict[str, np.ndarray], dtype: torch.dtype) -> dict[str, Tensor]:
    """Return weights as tensors of one type. Matrices are stored in four bits: NAME uint8 [rows, columns / 2], of two
    neighbours the first in the lower half, and NAME.scale fp16 [rows, columns / GROUP]; all else as fp16."""
    import torch

    weights: dict[str, Tensor] = {}
    for name, array in stored.items():
        if name.endswith(".scale"):
            continue
        tensor = torch.from_numpy(array)
        if tensor.dtype == torch.uint8:
            steps = torch.stack((tensor & 15, tensor >> 4), -1).flatten(1).float() - 8
            scale = torch.from_numpy(stored[f"{name}.scale"]).float()
            tensor = (steps.unflatten(1, (-1, GROUP)) * scale[..., None]).flatten(1)
        weights[name] = tensor.to(dtype)
    return weights


_PRIOR_FILE = WORDS_FOLDER / "prior.npz"
COMPARED, READ = 32, 12  # sentences that the encoder compares with the question, and those of them that it reads
NEAR_COUNTS, READ_COUNTS = 8.0, 1.0  # times a cosine and what reading says, in the network's nats
# Nats against a sentence for where it stands: the questions that the weights were fitted on are about running text.
_NEVER, _SELDOM, _LESS = -30.0, -2.0, -0.7
_OF_ROLE = {Role.HEADING: _NEVER, Role.CONTENTS: _NEVER, Role.NOTE: _SELDOM, Role.CODE: _SELDOM, Role.ROW: _LESS}
_ASKED_FOR = {
    Role.CODE: frozenset("code command commands function example pragma option flag grammar rule syntax line snippet "
                         "script config setting".split()),
    Role.ROW: frozenset("table row column list according appendix chart figure total number".split()),
    Role.NOTE: frozenset("note notes footnote footnotes endnote reference references source sources cited".split()),
    Role.CONTENTS: frozenset("contents chapter page index".split()),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Network:
    """Two hidden layers (ReLU) over standardised features. weights: [out, in]."""

    mean: np.ndarray
    std: np.ndarray
    layers: tuple[tuple[np.ndarray, np.ndarray], ...]

    @classmethod
    def from_stored(cls, stored: dict[str, np.ndarray], name: str) -> Network:
        """Return the network with the arrays ``name.mean``, ``name.std``, ``name.w1``, ``name.b1`` ..."""
        count = sum(key.startswith(f"{name}.w") for key in stored)
        layers = tuple((stored[f"{name}.w{at}"], stored[f"{name}.b{at}"]) for at in range(1, count + 1))
        return cls(stored[f"{name}.mean"], stored[f"{name}.std"], layers)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """[n, features] -> [n]."""
        hidden = np.clip((features - self.mean) / self.std, -5, 5)
        for at, (weights, bias) in enumerate(self.layers):
            hidden = hidden @ weights.T + bias
            if at < len(self.layers) - 1:
                hidden = np.maximum(hidden, 0)
        scores: np.ndarray = hidden[:, 0]
        return scores


@dataclass(frozen=True, eq=False, slots=True)
class Ranking:
    """scores: nats [n] for each sentence as an answer, up to a constant; confidence: the chance, in [0, 1], that the
    best one answers the question at all."""

    scores: np.ndarray
    confidence: float


class SentencePrior:
    """sentence: scores sentences by their words; answered: the log odds that the best of those that were read answers;
    summary: scores sentences as part of a digest."""

    def __init__(self, sentence: Network, answered: Network, summary: Network, reranker: Reranker) -> None:
        self._sentence, self._answered, self.summary, self._reranker = sentence, answered, summary, reranker

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> SentencePrior:
        """Return the weights in ``assets/words``."""
        with np.load(_PRIOR_FILE) as stored:
            arrays = {key: stored[key].astype(np.float32) for key in stored.files}
        networks = [Network.from_stored(arrays, name) for name in ("sentence", "answered", "summary")]
        return cls(networks[0], networks[1], networks[2], Reranker.shipped())

    def ranking(self, index: SentenceIndex, question: str, before: str = "") -> Ranking:
        """before: the question before, where this one points back to it. The document has a sentence."""
        words = by_words(self._sentence, index, question, before)
        found = np.argsort(-words, kind="stable")[:COMPARED]
        near = (self._reranker.vectors([index.sentences[at] for at in found.tolist()])
                @ self._reranker.question_vector(question, before))
        # What was not compared is no nearer than the farthest that was; likewise below for what was not read.
        scores = words + NEAR_COUNTS * near.min()
        scores[found] = words[found] + NEAR_COUNTS * near
        best = found[np.argsort(-scores[found], kind="stable")[:READ]]
        seen = scores[best]
        read = self._reranker.scores(question, [passage(index, at) for at in best.tolist()], before)
        scores += READ_COUNTS * read.min()
        scores[best] = seen + READ_COUNTS * read
        first = int(best[np.argmax(scores[best])])
        odds = float(self._answered(read_features(seen, read, scores[best],
                                                  strange_names(index, question, [first])[0])[None])[0])
        return Ranking(scores, float(1 / (1 + np.exp(-odds))))


def by_words(sentence: Network, index: SentenceIndex, question: str, before: str = "") -> np.ndarray:
    """Nats [n], up to a constant, by this network alone. before: as in ``SentencePrior.ranking``."""
    scores: np.ndarray = sentence(index.features(question, before)) + _by_role(index, question)
    return scores


def passage(index: SentenceIndex, sentence: int) -> Passage:
    """Return a sentence as the reranker reads it."""
    heading, line = int(index.heading_of[sentence]), index.line_of
    beside = sentence and line[sentence - 1] == line[sentence]
    return Passage(index.sentences[sentence], index.sentences[heading] if heading >= 0 else "",
                   index.sentences[sentence - 1] if beside else "")


def strange_names(index: SentenceIndex, question: str, sentences: Sequence[int]) -> np.ndarray:
    """float32 [sentences, 3]: of a question's names (``question.names``) how many stand nowhere in the document,
    how many not in a sentence, its heading or the sentence before, and how many there are. Who asks about another
    person, year or product than the document's gets a sentence that is about the same otherwise."""
    asked = index.stems(names(question))
    counts = np.zeros((len(sentences), 3), np.float32)
    counts[:, 0], counts[:, 2] = sum(stem not in index.vocabulary for stem in asked), len(asked)
    for row, sentence in enumerate(sentences if asked else ()):
        read = passage(index, sentence)
        known = index.stems(WORD.findall(f"{read.heading} {read.before} {read.sentence}".lower()))
        counts[row, 1] = len(set(asked).difference(known))
    return counts


def read_features(seen: np.ndarray, read: np.ndarray, scores: np.ndarray, strange: np.ndarray) -> np.ndarray:
    """float32 [11]: what tells whether the best sentence answers at all. First [n] each, of the sentences that were
    read: what network and vectors say, what the encoder says that read them, and both. strange: ``strange_names`` of
    the best."""
    order = np.argsort(-scores, kind="stable")
    best, ranked = int(order[0]), np.sort(read)[::-1]
    second = order[min(1, len(order) - 1)]
    together = float(np.logaddexp.reduce(read))
    return np.array([read[best], ranked[0], ranked[1] if len(read) > 1 else -9.0, together,
                     scores[best] - scores[second], seen[best] - seen.max(),
                     np.exp(ranked[0] - np.logaddexp(0.0, together)), np.log(len(read)), *strange], np.float32)


def _by_role(index: SentenceIndex, question: str) -> np.ndarray:
    words = set(question.lower().replace("?", " ").replace(",", " ").split())
    penalties = np.zeros(len(Role), np.float32)
    for role, penalty in _OF_ROLE.items():
        wanted = bool(words & _ASKED_FOR.get(role, frozenset())) or (role is Role.ROW and asks(question) is Asks.NUMBER)
        penalties[role] = 0.0 if wanted else penalty
    return penalties[index.roles]
