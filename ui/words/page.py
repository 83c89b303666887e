"""The page as a whole: its name, the top bar, the narrow screens' tabs, what several boxes say."""

from __future__ import annotations

APP = "TriForce Chat"
TAGLINE = "Whole documents, exact words, faster"
SENDS_TO = "Text leaves this machine: documents and questions are sent to {url}"
CANCEL = "Cancel"
PANES = (("library", "Library"), ("center", "Chat"), ("side", "Document"))
DISMISS = "Dismiss"
