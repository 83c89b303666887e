"""The engine that also runs comparisons: the benchmark's."""

from __future__ import annotations

from ..engine.engine import Engine
from .parts import ResearchParts


class ResearchEngine(Engine):
    """Answers with a ``ResearchConfig`` as with any other settings."""

    parts = ResearchParts
    answers_people = False  # it may only go on with a text: whoever compares knows what that needs
