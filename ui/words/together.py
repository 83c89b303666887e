"""Several documents that are read together."""

from __future__ import annotations

TOGETHER = "Read several together"
TOGETHER_HELP = "Ask about several documents at once; each is read in full"
ADD_MORE = "Add documents"
PICK_TITLE = "Which documents should be read together?"
PICK_HELP = ("Every document that you tick is read in full, in the order in which you tick them. A new conversation "
             "begins; earlier ones stay with their documents.")
PICK = "Documents"
READ_TOGETHER = "Read these together"
TOO_FEW = "Tick at least two documents, and at most {most}."
PART_MISSING = "The text of one of these documents is not there yet. Open it alone first."
NOT_READY = "not read"
COUNT = "{count} documents"
OVER_BY = "{over} tokens too many."
DROP_ONE = "Without “{title}” it would fit."
DROP_MORE = "Leave out two or more, or choose chapters afterwards."
FITS_TOGETHER = "{used} of {most} tokens. Fits."
ROOM_UNKNOWN = "What fits is known once a model is loaded."
ESTIMATED = "Documents that were not read yet are estimated; they are counted before anything is read."
PART_OF = "“{title}” is part of “{whole}”"
PART_OF_MORE = "Delete that one first; its conversations go with it."
NEW_TALK = "A new conversation begins"
NEW_TALK_MORE = ("The model now reads {count} documents together. The conversation you were in stays with “{title}”.")
CONSISTS = "Consists of"
