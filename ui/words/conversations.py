"""Conversations: names, versions, instructions, export, search, keys."""

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
INSTRUCT = "Instructions"
INSTRUCT_SET = "Instructions are set"
INSTRUCT_LABEL = "Instructions for this conversation"
INSTRUCT_HELP = ("What every answer in this conversation should heed: its language, its length, its tone, for whom it "
                 "is written. The model is told behind the document and before the first question, so the document "
                 "is not read again. Kept with the conversation and exported with it. They apply from the next "
                 "question on; the model reads the conversation so far anew then, which takes a moment.")
INSTRUCT_NONE = ("The model that is loaded follows no instructions: it was trained to find sentences of the document "
                 "that answer a question, and to quote them. Load a chat model (Models) to use this.")
INSTRUCT_KEEP = "Keep"
INSTRUCT_REMOVE = "Remove them"
INSTRUCT_LONG = "These instructions have {count} characters, and were not kept"
INSTRUCT_MOST = "{most} at most"
NO_INSTRUCTIONS = "The model that is loaded follows no instructions"
NO_INSTRUCTIONS_REMEDY = "Remove them (Instructions, above the chat), or load a chat model (Models)."
NEW_TALK = "New conversation"
EXPORT = "Export"
EXPORT_KINDS = {"md": "Markdown", "json": "JSON (all versions)", "html": "One HTML file"}
EXPORTED = "About “{document}”, begun {day}, exported from TriForce Chat."
EXPORTED_INSTRUCTIONS = "Instructions:"
EXPORTED_OTHERS = "Written with other instructions: {words}"
EXPORTED_WITHOUT = "Written without instructions."
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
    ("Enter", "Ask"), ("Shift+Enter", "New line"), ("Esc", "Leave a box or an edit; stop the answer"),
    ("Ctrl+Enter", "Ask the last question again"), ("↑", "In the empty line: reword the last question"),
    ("Alt+N", "New conversation"), ("Ctrl+K", "Search all conversations"), ("/", "Go to the question line"),
    ("Alt+1 Alt+2 Alt+3", "Go to library, chat, document"), ("← → ↑ ↓", "In the strip: move from page to page"),
    ("Tab Shift+Tab", "Everything else: forward, back; Enter presses"), ("?", "This table"),
)
CLOSE = "Close"
