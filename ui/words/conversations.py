"""Conversations: names, versions, instructions, export, search, keys."""

from __future__ import annotations

EDIT = "Edit"
AGAIN = "Ask again"
VERSION = "{number} of {count}"
VERSION_BEFORE = "Earlier version"
VERSION_AFTER = "Later version"
EDITING = "You are rewording an earlier question. The old version is kept."
SAME_SEED_TITLE = "Expect the same words"
SAME_SEED = "At temperature 0 a question has one answer. For another, choose the preset “Balanced” in Settings."
RENAME = "Rename"
RENAME_LABEL = "Name of this conversation"
INSTRUCT = "Instructions"
INSTRUCT_SET = "Instructions are set"
CONTEXT = "Context {percent}"
CONTEXT_OF = "{used} of {most} tokens of the context are taken"
CONTEXT_PARTS = (("document", "Document"), ("conversation", "This conversation"), ("left", "Free"))
CONTEXT_NEAR = "The context is almost full: about {left} tokens are left."
CONTEXT_FULL = "The context is full."
CONTINUE = "Continue in a new conversation"
CONTINUE_HELP = "The document stays as it is, and the last exchanges go along."
CONTINUED = " (continued)"
CARRIED = "Carried over from an earlier conversation"
NEW_TALK = "New conversation"
EXPORT_KINDS = {"md": "Export as Markdown", "html": "Export as one HTML file",
                "json": "Export as JSON (all versions, statistics)"}
EXPORTED = "About “{document}”, started {day}, exported from TriForce Chat."
EXPORTED_INSTRUCTIONS = "Instructions:"
EXPORTED_OTHERS = "Written with other instructions: {words}"
EXPORTED_WITHOUT = "Written without instructions."
EXPORTED_VERSION = "Version {number} of {count}; the JSON export has them all."
SEARCH = "Search all conversations"
SEARCH_NOTHING = "Nothing found for “{query}”."
SEARCH_ONE = "1 conversation"
SEARCH_FOUND = "{count} conversations"
STARTER_NAME = "What does it say about {name}?"
STARTER_CHAPTER = "What is the point of the part “{chapter}”?"
STARTER_WHOLE = "What are its main points?"
SHORTCUTS_TITLE = "Keys"
SHORTCUTS = (
    ("Enter", "Ask"), ("Shift+Enter", "New line"), ("Esc", "Close a box or cancel an edit; stop the answer"),
    ("Ctrl+Enter", "Ask the last question again"), ("↑", "In an empty question line: edit the last question"),
    ("Alt+N", "New conversation"), ("Ctrl+K", "Search all conversations"), ("/", "Go to the question line"),
    ("Ctrl+Z", "Undo a deletion"),
    ("Alt+1 Alt+2 Alt+3", "Go to library, chat, document"), ("← → ↑ ↓", "In the strip: move from page to page"),
    ("Tab Shift+Tab", "Everything else: forward, back; Enter presses"), ("?", "This table"),
)
CLOSE = "Close"
