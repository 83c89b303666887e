"""The evidence process: what it answers, when it runs, and what happens when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from triforce_core.documents.document import Document, Page
from triforce_core.errors import EvidenceDiedError
from triforce_core.evidence.client import EvidenceClient
from triforce_core.evidence.support import SupportFinder

KEEPER = "The lighthouse keeper counted forty ships before the storm. He wrote their names down."
COUNCIL = "The council paid him twelve pounds a year for his trouble with the lamps."
ANSWER = "The keeper counted forty ships before the storm came. The council paid him twelve pounds a year."


def of(*pages: str) -> Document:
    return Document("t", "txt", tuple(Page(str(number), text) for number, text in enumerate(pages)), "test")


def wait_until(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
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
        assert client.check(document, ANSWER) == SupportFinder(document).support(ANSWER)
    assert [one.found for one in client.check(of(KEEPER, COUNCIL), ANSWER)] == [True, True]
    assert [one.found for one in client.check(of(KEEPER), ANSWER)] == [True, False]


def test_it_is_started_with_the_first_document_and_computes_behind_the_engine(client: EvidenceClient) -> None:
    assert client.pid is None
    client.index(of(KEEPER))
    process = psutil.Process(client.pid)
    client.check(of(KEEPER), ANSWER)
    assert process.pid == client.pid and process.nice() > psutil.Process().nice()
    assert process.environ()["OMP_NUM_THREADS"] == "1"


def test_callers_of_several_threads_get_their_own_answers(client: EvidenceClient) -> None:
    documents = [of(KEEPER), of(COUNCIL), of(KEEPER, COUNCIL)] * 3
    found: list[object] = [None] * len(documents)

    def check(at: int) -> None:
        found[at] = client.check(documents[at], ANSWER)

    threads = [threading.Thread(target=check, args=(at,)) for at in range(len(documents))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [SupportFinder(document).support(ANSWER) for document in documents]


def test_killed_it_is_started_anew(client: EvidenceClient) -> None:
    document = of(KEEPER, COUNCIL)
    before = client.check(document, ANSWER)
    os.kill(client.pid, signal.SIGKILL)
    assert client.check(document, ANSWER) == before


def test_an_error_in_it_is_said_once_it_came_twice(client: EvidenceClient) -> None:
    broken = of(KEEPER)
    object.__setattr__(broken.pages[0], "text", 7)
    with pytest.raises(EvidenceDiedError, match="exit code"):
        client.check(broken, ANSWER)
    assert client.check(of(KEEPER), ANSWER), "and the next one is served"


def test_it_ends_when_nobody_needs_it_and_comes_back() -> None:
    client = EvidenceClient(idle_seconds=1.0)
    try:
        before = client.check(of(KEEPER), ANSWER)
        pid = client.pid
        wait_until(lambda: client.pid is None)
        assert not psutil.pid_exists(pid), "no zombie is left"
        assert client.check(of(KEEPER), ANSWER) == before
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
            client.check(long, ANSWER)
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
        client.check(of(KEEPER), ANSWER)
    client.index(of(KEEPER))
    assert client.pid is None


def test_the_page_stays_light() -> None:
    """What talks to the process imports neither torch nor numpy; and the process no torch, as checking needs none."""
    program = ("import sys\nfrom triforce_core import EvidenceClient, Document, Page\nclient = EvidenceClient()\n"
               "client.check(Document('t', 'txt', (Page('1', 'Ships came.'),), 't'), 'Ships came to the harbour.')\n"
               "print('numpy' in sys.modules, 'torch' in sys.modules)\n"
               "import psutil\nmaps = {one.path for one in psutil.Process(client.pid).memory_maps()}\n"
               "print(any('libtorch' in path for path in maps), any('numpy' in path for path in maps))\nclient.close()")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False", "True"]
