"""Every word a person sees about conversations: beside ``strings``, which holds all others."""

from __future__ import annotations

EDIT = "Edit"
AGAIN = "Ask again"
VERSION = "{number} of {count}"
VERSION_BEFORE = "Earlier version"
VERSION_AFTER = "Later version"
EDITING = "You are rewording an earlier question. The old version stays reachable."
SAME_SEED_TITLE = "Expect the same words"
SAME_SEED = "At temperature 0 a question has one answer. For another, choose the preset “Balanced” in Settings."
RENAME = "Rename"
RENAME_LABEL = "Name of this conversation"
EXPORT = "Export"
EXPORT_KINDS = {"md": "Markdown", "json": "JSON (all versions)", "html": "One HTML file"}
EXPORTED = "About “{document}”, begun {day}, exported from TriForce Chat."
EXPORTED_VERSION = "Version {number} of {count}; the JSON export holds all."
SEARCH = "Search all conversations"
SEARCH_NOTHING = "No conversation holds “{query}”."
SEARCH_ONE = "1 conversation"
SEARCH_FOUND = "{count} conversations"
STARTER_NAME = "What does it say about {name}?"
STARTER_CHAPTER = "What is the point of the part “{chapter}”?"
STARTER_WHOLE = "What are its main points?"
SHORTCUTS_TITLE = "Keys"
SHORTCUTS = (
    ("Enter", "Ask"), ("Shift+Enter", "New line"), ("Esc", "Stop the answer; leave an edit"),
    ("Ctrl+Enter", "Ask the last question again"), ("↑", "In the empty line: reword the last question"),
    ("Alt+N", "New conversation"), ("Ctrl+K", "Search all conversations"), ("/", "Go to the question line"),
    ("Alt+1 Alt+2 Alt+3", "Go to library, chat, document"), ("← → ↑ ↓", "In the strip: move from page to page"),
    ("Tab Shift+Tab", "Everything else: forward, back; Enter presses"), ("?", "This table"),
)
CLOSE = "Close"
