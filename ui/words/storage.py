"""The disk, the data folder and the database."""

from __future__ import annotations

DISK_FULL = "The disk is full: nothing more can be saved in {folder}"
DISK_FULL_REMEDY = "Free some space on it, or start the app with --data-dir on another disk."
NOT_WRITABLE = "{path} cannot be used ({why})"
NOT_WRITABLE_REMEDY = "Allow this user to read and write there, or start the app with another --data-dir."
IN_ITS_PLACE = "{path} is a file, and the app needs a folder there"
IN_ITS_PLACE_REMEDY = "Move that file away, or start the app with another --data-dir."
DATABASE_DAMAGED = "The database {path} is damaged"
DATABASE_DAMAGED_REMEDY = "Start the app again: it sets the file aside and begins with a new one."
SET_ASIDE_TITLE = "The database was damaged"
SET_ASIDE = ("It was set aside as {path}; nothing in it was deleted. The app begins with a new one: add your documents "
             "again.")
IN_USE = "The data folder {folder} is in use by the TriForce Chat at {url}"
IN_USE_STARTING = "The data folder {folder} is in use by another TriForce Chat, which is only just starting"
IN_USE_REMEDY = "Use that one, or start another with a --data-dir of its own."
DISK_TITLE = "The disk is full"
NOT_SAVED = "{why} Until then this page alone holds what was written last: it is saved as soon as that is possible."
CUT_SHORT = ("This answer was not kept to its end: the app stopped, or the disk was full, while it was being written. "
             "Ask again for the rest.")
READING_UNSAVED_TITLE = "This reading is not saved"
READING_UNSAVED = "Reading the document again will take as long as this time. {why}"
READING_DAMAGED = "The saved reading was damaged: it was removed, and the document was read again."
REMOVED_READINGS_TITLE = "Old saved readings were removed"
REMOVED_READINGS = ("{count} of an earlier version of this app, or damaged, which it can no longer open: {size} of the "
                    "disk are free again. These documents are read again when you ask. Readings of other models stay.")
DEAD_READINGS = "{count} of an earlier version or damaged, {size}: removed when the app starts"
