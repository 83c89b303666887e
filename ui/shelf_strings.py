"""Every word a person sees about the library's cards and saved readings: beside ``strings``, which holds all others."""

from __future__ import annotations

ABOUT = "About this document"
WORDS = "Words"
TOKENS = "Tokens"
READ_WITH = "Read with"
OTHER_MODEL = "{model}, not yet with the model in use"
LANGUAGE = "Language"
SAID = "{language}, says the file"
SAID_BUT = "{language}, says the file; by its words probably {guess}"
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
NOT_SAVED = "none: short documents are read anew faster"
FORGET = "Delete the saved reading"
FORGET_HELP = "Frees the disk. The document and its conversations stay; opening it reads it again."
ROOM = "Saved readings: {used} of {quota}, disk {free} free"
ROOM_HELP = "When they would take more, the one not used for longest goes first. Nothing is saved on a full disk."
