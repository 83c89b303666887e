"""Run the app on the scripted engine: ``python -m tests.scripted_app`` takes app.py's flags; --model names a script."""

from __future__ import annotations

import sys

import ui
from tests.scripted_engine import ScriptedEngine
from tests.scripted_evidence import ScriptedEvidence
from ui.app import engine_holder

if __name__ == "__main__":
    engine_holder.EvidenceClient = ScriptedEvidence  # type: ignore[misc, assignment]
    sys.exit(ui.main(make_engine=ScriptedEngine))
