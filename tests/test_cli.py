"""``python -m triforce_core ask``: streams, exit statuses and the JSON object, with a scripted engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.scripted_evidence import ScriptedEvidence
from triforce_core import EvidenceClient
from triforce_core import __main__ as cli
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document, Page
from triforce_core.events import (
    AttendedChunk,
    DocumentFit,
    DocumentOpened,
    Event,
    Finished,
    LoadProgress,
    ModelInfo,
    PageSpan,
    PrefillProgress,
    QuoteEvent,
    QuoteOccurrence,
    QuotePlace,
    RoundEvent,
    Script,
    TextDelta,
    TierCount,
)
from triforce_core.metrics import answer_stats

ROOT = Path(__file__).parents[1]
WORDS = ["Forty", "-two", ", he said", "."]
QUOTE = QuoteEvent(0, 0, 9, True, 3, (QuoteOccurrence(14, 23, (QuotePlace(1, "i", 14, 23),)),))


class Scripted:
    """An engine that says WORDS, one round each, and holds 2,000 tokens (characters, here)."""

    asked: dict[str, Any]

    def __init__(self, config: EngineConfig) -> None:
        self.config, self.cancelled, self.closed = config, False, False
        Scripted.asked = {"config": config, "engine": self}

    def load(self) -> Iterator[Event]:
        yield LoadProgress("weights", 1.0)
        yield ModelInfo("m", "d", "cpu", "", "cpu", "float32", 2000, 0, 0, instructions=self.config.model == "chat")

    def measure(self, document: Document, heard=lambda progress: None) -> DocumentFit:
        tokens = tuple(len(page.text) for page in document.pages)
        return DocumentFit(sum(tokens), 2000, tokens)

    def open_document(self, document: Document) -> Iterator[Event]:
        Scripted.asked["document"] = document
        yield PrefillProgress(1, 2, 100.0, 1.0)
        spans, at = [], 0
        for page in document.pages:
            spans.append(PageSpan(page.label, at, at + len(page.text)))
            at += len(page.text)
        yield DocumentOpened(document.id, at, tuple(spans), 2.0, 2.0, False, 2000)

    def ask(self, question: str, history: tuple, sampling: SamplingParams,
            speculation: SpeculationConfig, system: str = "", script: Script | None = None) -> Iterator[Event]:
        Scripted.asked |= {"question": question, "history": history, "sampling": sampling, "speculation": speculation,
                           "system": system, "script": script}
        rounds, text = [], ""
        for i in range(10**6 if question == "forever" else len(WORDS)):
            if self.cancelled:
                break
            if question == "forever":
                time.sleep(0.01)
            rounds.append(RoundEvent(i, (i,), ("bonus",), (TierCount("draft", 4, 3),), {}, None, 1.0 + i))
            yield rounds[-1]
            text += WORDS[i % len(WORDS)]
            yield TextDelta(WORDS[i % len(WORDS)])
        stats = answer_stats(rounds, prompt_tokens=5, reused_tokens=7, prefill_seconds=0.5, engine="triforce", why="on")
        yield Finished("cancelled" if self.cancelled else "stop", text, tuple(range(len(rounds))), stats,
                       (AttendedChunk(1, "i", 8, 16, 0.25, "some words"),), quotes=(QUOTE,))

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """Three pages of text, of about 3,000 characters each once read."""
    path = tmp_path / "book.txt"
    path.write_text("\n\n".join(f"Sentence {i} of this small book stands here." for i in range(200)))
    return path


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cli, "_make_engine", Scripted)
    monkeypatch.setattr(cli, "_make_evidence", ScriptedEvidence)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.txt"
    path.write_text("The answer is forty-two, he said. That was all.")
    return path


def test_the_answer_to_stdout_the_rest_to_stderr(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ask", str(small), "What is the answer?"]) == 0
    out, err = capsys.readouterr()
    assert out == ("Found:\n[p. 1] Part 1\n  The answer is forty-two, he said.\n[p. 1] Part 1\n  That was all.\n\n"
                   "Spelled from the passages, by m:\nForty-two, he said.\n")
    assert Scripted.asked["script"] == Script("", ((QuotePlace(1, "1", 0, 33),),))
    assert "47 tokens read in 2.0 s" in err and "1.1 tokens/s" in err and "draft 12/16 (75%)" in err
    assert Scripted.asked["engine"].closed


def test_the_json_object(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ask", str(small), "What is the answer?", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    answer = json.loads(out)
    assert answer["answer"] == "Forty-two, he said." and answer["token_ids"] == [0, 1, 2, 3]
    assert answer["document_tokens"] == 47 and answer["finish_reason"] == "stop"
    assert [(page["start"], page["end"]) for page in answer["pages"]] == [(0, 47)]
    stats = answer["stats"]
    assert stats["prefill_seconds"] == 2.5 and stats["time_to_first_token"] == 1.0
    assert stats["decode_tokens_per_second"] == pytest.approx(4 / 3.5) and stats["tokens_per_full_pass"] == 1.0
    assert stats["acceptance"] == {"draft": {"tested": 16, "accepted": 12}}
    assert answer["chunks"] == [{"page": 1, "label": "i", "start": 8, "end": 16, "share": 0.25, "text": "some words"}]
    assert answer["quotes"] == [{"number": 0, "start": 0, "end": 9, "closed": True, "count": 3, "occurrences": [
        {"start": 14, "end": 23, "places": [{"page": 1, "label": "i", "start": 14, "end": 23, "ocr": False}]}]}]
    assert answer["content"] == "Forty-two, he said. (p. 1)" and answer["level"] == "found"
    best = answer["passages"][0]
    assert best["text"] == "The answer is forty-two, he said." and best["path"] == ["Part 1"]
    assert best["places"] == [{"page": 1, "label": "1", "start": 0, "end": 33, "ocr": False}]
    assert best["marks"] == [[4, 10]]
    assert "support" not in answer


def test_pages_of_quotations_count_in_the_file(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book.write_text("\f".join(f"Page {number} of this small book stands here." for number in range(1, 4)))
    assert cli.main(["ask", str(book), "What?", "--pages", "2-3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (quote,), (chunk,) = told["quotes"], told["chunks"]
    assert (chunk["page"], chunk["label"]) == (2, "i")
    assert quote["occurrences"][0]["places"][0]["page"] == 2


def test_flags_become_settings(small: Path, tmp_path: Path) -> None:
    flags = ("--temperature 0.6 --top-p 0.9 --top-k 40 --seed 7 --max-new-tokens 9 --engine autoregressive --verifier"
             " coupled --gamma1 3 --gamma2 5 --budget 512 --chunk-size 16 --quotes off --ngram straight --dtype float32"
             " --mode cpu --max-context 4096 --threads 2 --gpu-memory-limit 24 --model M --draft-model D"
             f" --data-dir {tmp_path}")
    assert cli.main(["ask", str(small), "why?", *flags.split()]) == 0
    assert Scripted.asked["sampling"] == SamplingParams(0.6, 0.9, 40, 7, 9)
    assert Scripted.asked["speculation"] == SpeculationConfig(
        "autoregressive", "coupled", gamma1=3, gamma2=5, budget=512, chunk_size=16, quotes="off", ngram="straight")
    assert Scripted.asked["config"] == EngineConfig(
        "M", "D", "cpu", "float32", max_context=4096, threads=2, gpu_memory_limit=24.0,
        saved_readings=tmp_path / "cache" / "readings", measurements=tmp_path / "cache" / "measurements")
    assert cli.main(["ask", str(small), "why?", "--no-save"]) == 0
    assert Scripted.asked["config"].saved_readings is Scripted.asked["config"].measurements is None


def test_a_system_prompt_reaches_a_model_that_follows_it(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["ask", str(small), "why?", "--system", "Answer in French."]
    assert cli.main([*asked, "--model", "chat"]) == 0 and Scripted.asked["system"] == "Answer in French."
    capsys.readouterr()
    assert cli.main(asked) == 2
    out, err = capsys.readouterr()
    assert "Forty" not in out and "follows no instructions" in err and err.count("\n") == 1
    assert "document" not in Scripted.asked, "said before the document is read"


def test_free_answers_are_judged_by_the_document(book: Path, capsys: pytest.CaptureFixture[str],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_make_evidence", EvidenceClient)
    book.write_text("\f".join(f"The keeper of Ness {number} counted {number}01 ships." for number in range(1, 4)))
    asked = ["ask", str(book), "why?", "--json", "--pages", "2-3"]
    WORDS[:] = ["The keeper of Ness 3 counted 301 ships.", " Quantum computers factor", " very large integers quickly."]
    try:
        assert cli.main([*asked, "--model", "chat"]) == 0
        here, foreign = json.loads(capsys.readouterr().out)["support"]
        assert (here["verdict"], here["places"][0]["page"]) == ("supported", 3)
        assert (foreign["verdict"], foreign["places"]) == ("not found", [])
        assert cli.main(asked) == 0 and "support" not in json.loads(capsys.readouterr().out), "it only quotes"
    finally:
        WORDS[:] = ["Forty", "-two", ", he said", "."]


def test_a_document_that_does_not_fit_is_refused_with_the_pages_that_do(
    book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ask", str(book), "why?", "--max-new-tokens", "5"]) == 2
    out, err = capsys.readouterr()
    assert "Sentence 0" in out and "Forty" not in out and "2,000 fit" in err and err.count("\n") == 1
    assert "document" not in Scripted.asked


def test_several_files_are_read_together(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.md"
    other.write_text("# Ships\n\nForty ships.")
    assert cli.main(["ask", str(other), str(small), "why?", "--json"]) == 0
    assert [page["label"] for page in json.loads(capsys.readouterr().out)["pages"]] == ["Ships, 1", "small, 1"]
    assert cli.main(["ask", str(other), str(small), "why?", "--chapters", "ships"]) == 0
    assert [page.label for page in Scripted.asked["document"].pages] == ["Ships, 1"]


@pytest.mark.parametrize(("flags", "words"), [
    ("--chapters 2", "ships"), ("--chapters ships", "ships"), ("--chapters 1,3", "whales men"), ("--pages 2", "ships"),
    ("--pages 1,3", "whales men"), ("--chapters 1-3", "whales ships men"),
])
def test_chapters_and_pages_choose_what_is_read(
    tmp_path: Path, flags: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.documents.hostile import epub

    path = tmp_path / "book.epub"
    path.write_bytes(epub({f"{name}.xhtml": f"<h1>Of {name}</h1><p>{'x' * 700}</p>"
                           for name in ("whales", "ships", "men")}))
    assert cli.main(["ask", str(path), "why?"]) == 2  # more than 2,000 in all
    status = cli.main(["ask", str(path), "why?", *flags.split()])
    if len(words.split()) == 3:
        assert status == 2 and "--pages 1-2" in capsys.readouterr().err
        return
    read = Scripted.asked["document"].pages
    assert status == 0 and [page.text.split("\n")[0] for page in read] == [f"Of {word}" for word in words.split()]


@pytest.mark.parametrize(("lengths", "pages"), [((900, 900, 900), "--pages 1-2"), ((2001, 5), "Not even page 1")])
def test_the_advice_on_pages(lengths: tuple[int, ...], pages: str) -> None:
    from triforce_core.documents.document import Page
    from triforce_core.errors import ContextTooLongError

    document = Document("t", "txt", tuple(Page(str(i), "x" * n) for i, n in enumerate(lengths, 1)), "text")
    with pytest.raises(ContextTooLongError, match=pages):
        cli._refuse_if_too_long(Scripted(EngineConfig()), document, ((1, len(lengths)),),  # type: ignore[arg-type]
                                cli._Progress())


@pytest.mark.parametrize("arguments", [
    ["ask"], ["ask", "{small}"], ["nonsense"], [], ["ask", "{small}", "why?", "--no-such-flag"],
    ["ask", "{small}", "why?", "--temperature", "-1"], ["ask", "{small}", "why?", "--temperature", "warm"],
    ["ask", "{small}", "why?", "--gamma1", "many"], ["ask", "{small}", "why?", "--gamma1", "1000"],
    ["ask", "{small}", "why?", "--pages", "5-2"], ["ask", "{small}", "why?", "--pages", "9-9"],
    ["ask", "{small}", "why?", "--chapters", "1"], ["ask", "{small}", "why?", "--chapters", "1", "--pages", "1"],
    ["ask", "{small}", "why?", "--max-new-tokens", "0"], ["ask", "{small}", " "], ["ask", "/no/such/file.pdf", "why?"],
    ["ask", "{small}", "why?", "--verifier", "hope"], ["ask", "{small}", "why?", "--gpu-memory-limit", "much"],
    ["ask", "{small}", "why?", "--gpu-memory-limit", "0"],
])
def test_a_mistake_is_one_line_and_exit_2(
    arguments: list[str], small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = cli.main([argument.format(small=small) for argument in arguments])
    except SystemExit as exit_:
        status = exit_.code
    out, err = capsys.readouterr()
    assert status == 2 and out == "" and err.count("\n") == 1 and len(err) > 20


def test_ctrl_c_keeps_what_was_written(small: Path) -> None:
    program = ("import sys; sys.path.insert(0, 'tests'); import test_cli; from triforce_core import __main__ as cli\n"
               "cli._make_engine, cli._make_evidence = test_cli.Scripted, test_cli.ScriptedEvidence\n"
               "sys.exit(cli.main(sys.argv[1:]))")
    process = subprocess.Popen([sys.executable, "-c", program, "ask", str(small), "forever", "--no-save"], cwd=ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stdout is not None
    before = [process.stdout.readline() for _ in range(7)]
    start = process.stdout.read(30)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Spelled" in before[-1] and start.startswith("Forty-two") and rest.endswith("\n") and "(cancelled)" in err


@pytest.mark.slow
def test_with_the_real_engine(small: Path, tmp_path: Path) -> None:
    from engine.tiny import write_model

    write_model(tmp_path / "target", layers=2, heads=2, seed=1)
    write_model(tmp_path / "draft", layers=1, heads=2, seed=2)
    command = ["ask", str(small), "What is the answer?", "--json", "--no-save",
               "--model", str(tmp_path / "target"), "--draft-model", str(tmp_path / "draft"), "--dtype", "float32",
               "--mode", "cpu", "--threads", "1", "--max-new-tokens", "24", "--verifier", "coupled", "--temperature",
               "0.6", "--seed", "3"]
    both = []
    for engine in ("triforce", "autoregressive"):
        status, out, err = forked.run([*command, "--engine", engine], {}, tmp_path)
        assert status == 0, err
        both.append(json.loads(out))
    assert both[0]["token_ids"] == both[1]["token_ids"] and both[0]["answer"] == both[1]["answer"]
    assert both[0]["document_tokens"] == both[0]["pages"][-1]["end"] > 10
    assert both[0]["stats"]["decode_tokens_per_second"] > 0
    assert both[1]["stats"]["tokens_per_full_pass"] == 1.0


def test_help_is_quick_and_brings_no_torch() -> None:
    program = ("import sys\nfrom triforce_core.__main__ import main\n"
               "try: main(['ask', '--help'])\nexcept SystemExit as end: assert end.code == 0\n"
               "assert 'torch' not in sys.modules and 'numpy' not in sys.modules")
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert time.monotonic() - start < 1.0
    assert "--pages A-B" in done.stdout


def test_a_reading_that_was_not_saved_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    opened = DocumentOpened("d", 9, (), 2.0, 2.0, False, 2000, unsaved="The disk is full.")
    cli._Progress().opened(opened, Document("A book", "txt", (Page("1", "text"),), "test"))
    assert "not saved" in (said := capsys.readouterr().err) and "The disk is full." in said


def test_the_encoding_of_a_text_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "small.txt"
    path.write_bytes("Vor der Brücke steht ein Müller.".encode("mac-roman"))
    assert cli.main(["ask", str(path), "Who?", "--encoding", "macintosh"]) == 0
    assert "Brücke steht ein Müller" in Scripted.asked["document"].pages[0].text
