"""The page as a whole: its name, the top bar, the narrow screens' tabs, what several boxes say."""

from __future__ import annotations

APP = "TriForce Chat"
TAGLINE = "Whole documents, exact words, faster"
SENDS_TO = "Text leaves this machine: documents and questions are sent to {url}"
PANES = (("library", "Library"), ("center", "Chat"), ("side", "Document"))
TITLE_OF = "{title} · TriForce Chat"
NO_DOCUMENT = "That document is not in this library"
NO_DOCUMENT_MORE = "The link may come from another library, or the document was deleted. Open one on the left."
NO_CONVERSATION = "That conversation is not here"
NO_CONVERSATION_MORE = ("It was deleted, or the link comes from another library. The document's other conversations "
                        "are on the left.")
