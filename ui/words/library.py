"""The library panel: dropping files, the documents' cards, saved readings."""

from __future__ import annotations

DROP_HERE = "Drop documents here, or click"
DROP_HELP = "PDF, text, Markdown, HTML,\nWord or EPUB"
DROP_ANYWHERE = "Drop it anywhere to add it to the library"
DROP_OTHER = "Not added: {names}. Documents are PDF, text, Markdown, HTML, Word or EPUB files."
LIBRARY_EMPTY = "No documents yet. Drop one anywhere on this window."
DELETE = "Delete"
DELETE_SURE = "Delete?"
DELETED = "Deleted “{title}”"
UNDO = "Undo"
DELETE_DOCUMENT = "Delete {title} with its conversations"
DELETE_CONVERSATION = "Delete this conversation"
MORE_CONVERSATIONS = "Earlier conversations"
NEW_CONVERSATION = "New conversation"
FILE_MISSING = "{name} cannot be read: there is no such file."
FILE_EMPTY = "{name} is empty (0 bytes). Choose a file with content."
UPLOAD_REFUSED = "That file did not come through this page's upload. Drop it again."
NOT_ADDED = "Not added"
SAMPLE_NAME = "The TriForce Chat handbook.pdf"
PAGES_READ = "{chosen} of {pages} pages"
PHASES = {
    "extracting": "Extracting text", "locked": "Needs its password", "failed": "Could not be read",
    "waiting": "Waiting for the engine", "loading": "Starting the engine",
    "tokenize": "Turning the text into tokens", "read": "Reading",
    "restore": "Reopening the saved reading", "save": "Saving the reading", "problem": "Not read",
    "tune": "Measuring this machine", "warm-up": "Preparing the engine for it", "draft": "Reading with the draft model",
    "too_long": "Too long: choose pages", "ready": "Ready", "resting": "Saved",
    "unsaved": "Read before", "closed": "Not read yet",
}
ABOUT = "About this document"
NOT_READ = "Left out"
WORDS = "Words"
TOKENS = "Tokens"
READ_WITH = "Read with"
OTHER_MODEL = "{model}, not yet with the model in use"
LANGUAGE = "Language"
SAID = "{language} (stated in the file)"
SAID_BUT = "{language} (stated in the file), but by its words probably {guess}"
PROBABLY = "probably {language}"
LANGUAGES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese",
             "nl": "Dutch", "pl": "Polish", "sv": "Swedish", "da": "Danish", "no": "Norwegian", "nb": "Norwegian",
             "fi": "Finnish", "cs": "Czech", "hu": "Hungarian", "ro": "Romanian", "tr": "Turkish", "el": "Greek",
             "ru": "Russian", "uk": "Ukrainian", "la": "Latin", "ar": "Arabic", "he": "Hebrew", "hi": "Hindi",
             "zh": "Chinese", "ja": "Japanese", "ko": "Korean"}
OPENED = "Last opened"
YESTERDAY = "yesterday"
FILE = "File"
SAVED = "Saved reading"
NOT_SAVED = "none: reading a short document again is faster"
FORGET = "Delete the saved reading"
FORGET_HELP = "Frees the disk. The document and its conversations stay; opening it reads it again."
ROOM = "Saved readings: {used} of {quota}, disk {free} free"
ROOM_HELP = "When this is full, the one unused for longest is deleted first. Nothing is saved on a full disk."
