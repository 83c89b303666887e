"""The evidence process: what it answers, when it runs, and what happens when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from triforce_core.documents.document import Document, Page
from triforce_core.errors import EvidenceDiedError
from triforce_core.events import SentenceSupport
from triforce_core.evidence.client import EvidenceClient
from triforce_core.evidence.finder import PassageFinder
from triforce_core.evidence.support import SupportFinder

KEEPER = "The lighthouse keeper counted forty ships before the storm. He wrote their names down."
COUNCIL = "The council paid him twelve pounds a year for his trouble with the lamps."
ANSWER = "The keeper counted forty ships before the storm. The council paid him twelve pounds a year."


def of(*pages: str) -> Document:
    return Document("t", "txt", tuple(Page(str(number), text) for number, text in enumerate(pages)), "test")


def judged(document: Document) -> list[SentenceSupport]:
    """What the finder says in this process."""
    return list(SupportFinder(PassageFinder(document)).support(ANSWER))


def wait_until(what: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def client() -> Iterator[EvidenceClient]:
    made = EvidenceClient()
    yield made
    made.close()


def test_it_answers_what_the_finder_would(client: EvidenceClient) -> None:
    for document in (of(KEEPER, COUNCIL), of(COUNCIL), of(KEEPER)):
        assert [*client.check(document, ANSWER)] == judged(document)
    assert [one.verdict for one in client.check(of(KEEPER, COUNCIL), ANSWER)] == ["supported", "supported"]
    assert [one.verdict for one in client.check(of(KEEPER), ANSWER)] == ["supported", "not found"]


def test_it_is_started_with_the_first_document(client: EvidenceClient) -> None:
    assert client.pid is None
    client.index(of(KEEPER))
    process = psutil.Process(client.pid)
    list(client.check(of(KEEPER), ANSWER))
    assert process.pid == client.pid and process.environ()["OMP_NUM_THREADS"] == "1"


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority of its own on Linux")
def test_vectors_are_made_behind_the_engine_and_kept(tmp_path: Path) -> None:
    document = of(KEEPER, COUNCIL, *(f"{KEEPER} {COUNCIL} Page {number}." for number in range(8)))
    for kept in (False, True):
        client = EvidenceClient(tmp_path)
        client.index(document)
        pid = client.pid
        wait_until(lambda own=pid, now=kept: now or behind(own), 60)
        wait_until(lambda: bool(list(tmp_path.glob("*.vectors"))), 120)  # it gives way to whatever else runs
        assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, os.getpid())
        assert KEEPER[:30] in list(client.find(document, "How many ships?"))[-1].passages[0].text
        client.close()
    client.forget(["0" * 32])
    assert list(tmp_path.glob("*.vectors"))
    client.forget([document.id])  # with its document
    assert not list(tmp_path.iterdir())


def behind(pid: int) -> bool:
    """Whether a thread of a process has a lower priority than the process."""
    return any(os.getpriority(os.PRIO_PROCESS, int(thread.name)) > os.getpriority(os.PRIO_PROCESS, pid)
               for thread in Path(f"/proc/{pid}/task").iterdir())


def test_callers_of_several_threads_get_their_own_answers(client: EvidenceClient) -> None:
    documents = [of(KEEPER), of(COUNCIL), of(KEEPER, COUNCIL)] * 3
    found: list[object] = [None] * len(documents)

    def check(at: int) -> None:
        found[at] = list(client.check(documents[at], ANSWER))

    threads = [threading.Thread(target=check, args=(at,)) for at in range(len(documents))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [judged(document) for document in documents]


def test_killed_it_is_started_anew(client: EvidenceClient) -> None:
    document = of(KEEPER, COUNCIL)
    before = list(client.check(document, ANSWER))
    os.kill(client.pid, signal.SIGKILL)
    assert list(client.check(document, ANSWER)) == before


def test_an_error_in_it_is_said_once_it_came_twice(client: EvidenceClient) -> None:
    broken = of(KEEPER)
    object.__setattr__(broken.pages[0], "text", 7)
    with pytest.raises(EvidenceDiedError, match="exit code"):
        list(client.check(broken, ANSWER))
    assert client.check(of(KEEPER), ANSWER), "and the next one is served"


def test_it_ends_when_nobody_needs_it_and_comes_back() -> None:
    client = EvidenceClient(idle_seconds=1.0)
    try:
        before = list(client.check(of(KEEPER), ANSWER))
        pid = client.pid
        wait_until(lambda: client.pid is None)
        assert not psutil.pid_exists(pid), "no zombie is left"
        assert list(client.check(of(KEEPER), ANSWER)) == before
    finally:
        client.close()


def test_it_ends_with_the_process_that_started_it() -> None:
    program = ("import os\nfrom triforce_core import EvidenceClient, Document, Page\nclient = EvidenceClient()\n"
               "client.index(Document('t', 'txt', (Page('1', 'Ships came.'),), 't'))\n"
               "print(client.pid, flush=True)\nos._exit(0)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    wait_until(lambda: not psutil.pid_exists(int(done.stdout)) or
               psutil.Process(int(done.stdout)).status() == psutil.STATUS_ZOMBIE)


def test_closing_does_not_wait_for_what_it_does(client: EvidenceClient) -> None:
    long = of(*(f"The keeper number {number} counted {number * 7} ships. " * 40 for number in range(900)))
    failed: list[BaseException] = []

    def check() -> None:
        try:
            list(client.check(long, ANSWER))
        except EvidenceDiedError as error:
            failed.append(error)

    asking = threading.Thread(target=check)
    asking.start()
    wait_until(lambda: client.pid is not None)
    started = time.monotonic()
    client.close()
    asking.join(10)
    assert time.monotonic() - started < 3 and len(failed) == 1 and client.pid is None
    with pytest.raises(EvidenceDiedError):
        list(client.check(of(KEEPER), ANSWER))
    client.index(of(KEEPER))
    assert client.pid is None


def test_the_page_stays_light() -> None:
    """What talks to the process imports neither torch nor numpy."""
    program = ("import sys\nfrom triforce_core import EvidenceClient, Document, Page\nclient = EvidenceClient()\n"
               "client.check(Document('t', 'txt', (Page('1', 'Ships came.'),), 't'), 'Ships came to the harbour.')\n"
               "print('numpy' in sys.modules, 'torch' in sys.modules)\nclient.close()")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_first_order_by_words_needs_no_torch() -> None:
    program = """import sys, threading, time
from triforce_core import Document, Page
from triforce_core.evidence.process import Find, Index, _Server, queue
seen, inbox = [], queue.SimpleQueue()
class Sender:
    def send(self, said):
        seen.append("torch" in sys.modules)
inbox.put(Index(Document("t", "txt", (Page("1", "Ships came to the harbour."),), "t")))
inbox.put(Find(1, "Which ships came?", "", ""))
threading.Thread(target=_Server(Sender(), inbox, set(), None).run, daemon=True).start()
while not seen:
    time.sleep(0.01)
print(seen[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_it_finds_passages(client: EvidenceClient) -> None:
    document = of(KEEPER, COUNCIL)
    *before, last = client.find(document, "How much did the council pay him?")
    assert last.final and not any(one.final for one in before) and last.level is not None
    best = last.passages[0]
    assert best.text == COUNCIL and best.places[0].page == 2 and best.marks == ((0, len(COUNCIL)),)


def test_whoever_stops_listening_leaves_the_next_nothing_to_wait_for(client: EvidenceClient) -> None:
    document = of(KEEPER, COUNCIL)
    found = client.find(document, "How much did the council pay him?")
    next(found)
    found.close()
    assert client.check(document, ANSWER)
    assert [one.question for one in client.find(document, "How many ships?")][-1] == "How many ships?"


def test_a_search_is_repeated_by_a_new_process(client: EvidenceClient) -> None:
    document = of(KEEPER, COUNCIL)
    first = list(client.find(document, "How many ships?"))[-1].passages[0].text
    os.kill(client.pid, signal.SIGKILL)
    assert list(client.find(document, "How many ships?"))[-1].passages[0].text == first == KEEPER
