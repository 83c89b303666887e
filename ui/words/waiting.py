"""What waits for the engine, and questions that are refused."""

from __future__ import annotations

FOR_READING = "Waiting until “{title}” is read"
FOR_PAGES = "Waiting until you choose pages above"
FOR_TEXT = "Waiting for the text to be extracted"
FOR_TEXT_PAGES = "Waiting for the text: page {done} of {total} extracted"
FOR_PAUSE = "Pausing the reading of “{title}”"
FOR_ANSWER = "Waiting for an answer about “{title}”"
FOR_RACE = "Waiting for a race about “{title}”"
FOR_ENGINE = "Waiting for the engine to start"
AND_MORE = "; {more} more in line before this"
ETA = "about {eta} left"
NOT_KEPT = "The conversation could not be read or saved ({kind})"
NOT_KEPT_MORE = ("The question was not asked. Look whether the disk is full, then ask again; if it stays so, start the "
                 "app again.")
TEXT_CHANGES = "The text of this document is being extracted again"
TEXT_CHANGES_MORE = "Ask again in a moment."
