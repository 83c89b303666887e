"""Two ranks (gloo, on the CPU) led by a client: the words of one rank, and every way in which one of them can end."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest
from engine.tiny import document, write_model

from tests.worker.test_client import make_client, take, wait_until
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
from triforce_core.errors import ConfigError, ContextTooLongError, EngineDiedError
from triforce_core.events import DocumentOpened, Event, Finished, ModelInfo, RoundEvent
from triforce_core.worker.client import EngineClient

PLAIN = SpeculationConfig(engine="autoregressive", verifier="coupled", quotes="off")
TRIFORCE = SpeculationConfig(verifier="coupled", gamma1=2, gamma2=5, budget=128, recent=48, window=32, quotes="off")
REJECTION = replace(TRIFORCE, verifier="rejection", quotes="auto")
QUESTION = "Who found the lamp?"
WAYS = [(0.0, PLAIN), (0.0, TRIFORCE), (0.8, PLAIN), (0.8, TRIFORCE), (0.8, REJECTION)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    root = tmp_path_factory.mktemp("pair")
    write_model(root / "target", layers=3, heads=4, seed=1)
    write_model(root / "draft", layers=1, heads=2, seed=2)
    return EngineConfig(str(root / "target"), str(root / "draft"), "cpu", "float32", threads=1, gpus=2,
                        saved_readings=root / "readings")


@pytest.fixture(scope="module")
def alone(config: EngineConfig) -> list[Finished]:
    """One rank's answers, in each way."""
    engine = Engine(replace(config, gpus=1))
    list(engine.load())
    list(engine.open_document(document()))
    return [finished(engine.ask(QUESTION, (), sampling(temperature), way)) for temperature, way in WAYS]


@pytest.fixture(scope="module")
def client(config: EngineConfig) -> Iterator[EngineClient]:
    with EngineClient(config) as client:
        yield client


def sampling(temperature: float, tokens: int = 20) -> SamplingParams:
    return SamplingParams(temperature, 0.9, seed=3, max_new_tokens=tokens, stop_token_ids=())


def finished(events: object) -> Finished:
    *_, last = events  # type: ignore[misc]
    assert isinstance(last, Finished)
    return last


def family(client: EngineClient) -> list[psutil.Process]:
    """Rank 0 and those it leads."""
    leader = psutil.Process(client.status().pid)
    return [leader, *leader.children()]


def gone(processes: list[psutil.Process]) -> bool:
    def runs(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end between two questions
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return False

    return not any(runs(process) for process in processes)


def endless(client: EngineClient) -> Iterator[Event]:
    job = client.ask(QUESTION, (), sampling(0.0, 3000), PLAIN, document=document())
    take(job, RoundEvent, 3)
    return job


def test_two_ranks_write_what_one_does(client: EngineClient, alone: list[Finished]) -> None:
    """Plain decoding, TriForce at both temperatures and by rejection: the same tokens, from the same pages."""
    *_, opened = client.open_document(document())
    assert isinstance(opened, DocumentOpened) and not opened.restored  # one rank's saved reading is of no use here
    for (temperature, way), one in zip(WAYS, alone, strict=True):
        two = finished(client.ask(QUESTION, (), sampling(temperature), way))
        assert two.token_ids == one.token_ids, (temperature, way)
        assert two.page_shares == pytest.approx(one.page_shares, abs=1e-4)
        assert [chunk.start for chunk in two.chunks[:4]] == [chunk.start for chunk in one.chunks[:4]]
        assert dict(two.stats.acceptance) == dict(one.stats.acceptance)
    assert alone[0].token_ids == alone[1].token_ids and alone[2].token_ids == alone[3].token_ids


def test_ranks_choose_the_same_lengths_though_their_clocks_differ(client: EngineClient, alone: list[Finished]) -> None:
    """Rank 0 decides; were each to go by its own clock, passes of different width would meet, or none at all."""
    chosen = replace(TRIFORCE, gamma1="auto", gamma2="auto", pace="on")
    # What passes cost is measured when a document is opened, for answers as the last one was asked.
    finished(client.ask(QUESTION, (), sampling(0.8, 1), chosen, document=document()))
    for opened in (document(seed=1), document()):
        list(client.open_document(opened))
    events = list(client.ask(QUESTION, (), sampling(0.8, 40), chosen, document=document()))
    assert finished(events).token_ids[:20] == alone[2].token_ids
    # Drafts of random weights do not pay: the usual length is left.
    assert {event.gamma2 for event in events if isinstance(event, RoundEvent)} != {10}


def test_stop_ends_both_and_both_go_on(client: EngineClient, alone: list[Finished]) -> None:
    job = endless(client)
    leader = client.status().pid
    client.cancel()
    assert finished(job).reason == "cancelled"
    reading = client.open_document(document(seed=2))
    next(reading)
    client.cancel()
    assert not any(isinstance(event, DocumentOpened) for event in reading)
    with pytest.raises(ContextTooLongError):
        list(client.open_document(document(sentences=2000)))
    with pytest.raises(ConfigError, match="empty"):
        list(client.ask(" ", (), sampling(0.0), PLAIN, document=document()))
    assert finished(client.ask(QUESTION, (), sampling(0.0), TRIFORCE)).token_ids == alone[1].token_ids
    assert client.status().pid == leader


def test_a_killed_rank_ends_the_answer_at_once_and_the_next_question_is_answered(
        client: EngineClient, alone: list[Finished]) -> None:
    job = endless(client)
    leader, follower = processes = family(client)
    started = time.monotonic()
    follower.kill()
    with pytest.raises(EngineDiedError, match=r"while answering: the process of rank 1 is gone.*SIGKILL"):
        list(job)
    assert time.monotonic() - started < 10
    wait_until(lambda: gone(processes))
    events = list(client.ask(QUESTION, (), sampling(0.0), TRIFORCE, document=document()))
    assert finished(events).token_ids == alone[1].token_ids
    assert client.status().pid != leader.pid
    assert list(client.open_document(document()))[-1].restored  # by both, from what each had saved

    processes = family(client)
    endless(client)
    processes[0].send_signal(signal.SIGKILL)
    wait_until(lambda: gone(processes))


def test_two_ranks_stream_their_caches_from_host_memory_and_none_is_left(
        config: EngineConfig, alone: list[Finished]) -> None:
    with EngineClient(replace(config, mode="offload", device="cpu", resident_layers=1)) as client:
        *_, info = client.load()
        assert isinstance(info, ModelInfo) and info.mode == "offload"
        list(client.open_document(document()))
        for (temperature, way), one in zip(WAYS[:4], alone, strict=False):
            assert finished(client.ask(QUESTION, (), sampling(temperature), way)).token_ids == one.token_ids
        processes = family(client)
        assert len(processes) == 2
    assert gone(processes)


def test_a_second_gpu_that_is_not_there_is_a_clear_error() -> None:
    import torch

    if torch.cuda.device_count() > 1:
        pytest.skip("this machine has several GPUs")
    with make_client(gpus=2) as client:
        with pytest.raises(ConfigError, match="gpus is 2"):
            list(client.load())
        assert client.status().state != "dead"
    with pytest.raises(ConfigError, match="device is 'cuda:1'"):
        EngineConfig(gpus=2, device="cuda:1")
