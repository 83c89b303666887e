"""Clients of the served page's API, and a model that chats."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from little_books import wait_for

from tests.scripted_engine import EngineScript

if TYPE_CHECKING:
    import openai


@pytest.fixture
def scripted(served, fresh_script) -> EngineScript:
    """A quick script."""
    served.script.restore_seconds, served.script.triforce_tokens_per_second = 0.0, 4000.0
    return fresh_script


@pytest.fixture
def client(served, scripted) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=served.url + "v1", api_key="none", max_retries=0, timeout=20.0)


@pytest.fixture
def chat_model(served, scripted, monkeypatch) -> None:
    """The model follows instructions: its answers repeat them."""
    wait_for(lambda: served.services.queue.model is not None)
    chatty = dataclasses.replace(served.services.queue.model, instructions=True)
    monkeypatch.setattr(served.services.queue, "model", chatty)
    monkeypatch.setattr(served.services.queue._engine, "_model", chatty)
