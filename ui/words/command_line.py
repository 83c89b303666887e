"""The command line: its help, and what the terminal says."""

from __future__ import annotations

NEEDS_URL = "--engine remote has no server"
NEEDS_URL_REMEDY = "Give its address with --base-url http://HOST:PORT/v1."
URL_UNUSED = "--base-url and --remote-model belong to --engine remote"
