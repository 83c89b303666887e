"""Several documents that are read together."""

from __future__ import annotations

TOGETHER = "Read several together"
TOGETHER_HELP = "Ask about several documents at once; each is read in full"
TOO_FEW = "Tick at least two documents, and at most {most}."
PART_MISSING = "The text of one of these documents is not there yet. Open it alone first."
COUNT = "{count} documents"
PART_OF = "“{title}” is part of “{whole}”"
PART_OF_MORE = "Delete that one first; its conversations go with it."
NEW_TALK = "A new conversation begins"
NEW_TALK_MORE = ("The model now reads {count} documents together. The conversation you were in stays with “{title}”.")
CONSISTS = "Consists of"
