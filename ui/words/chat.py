"""The chat: asking, answers under way and ended, checked quotations."""

from __future__ import annotations

CHAT = "Chat"
ASK_PLACEHOLDER = "Ask about a document"
ASK_ABOUT = "Ask about {scope}"
ASK_LATER = "Choose the pages to read first"
SEND = "Ask"
STOP = "Stop"
QUOTES_ONLY = "Only quotes sentences · ? all keys"
QUOTES_ONLY_HELP = "The loaded model only quotes. For summaries and free answers load a chat model under Models."
KEYS = "Enter asks · Shift+Enter new line · ? all keys"
OPEN_FIRST = "Open a document first"
OPEN_FIRST_MORE = "Choose one in the library, or drop a file anywhere on this window."
ONE_AT_A_TIME = "One question at a time"
ONE_AT_A_TIME_MORE = "Wait until the one before is answered, or press Stop; then ask again."
STOPPING = "Stopping…"
QUEUED_NEXT = "Queued: next"
PREPARING = "Getting the document ready"
ANSWER_NOW = "Answer now from {pages}"
FROM_PAGES = "Answered from {pages} of {whole}: the rest was still being read."
THINKING = "Reading the question"
WRITING = "{rate} tok/s · {tokens} tokens"
STOPPED = "You stopped it here."
DOCUMENT_DELETED = "The document was deleted while this was being answered."
CONVERSATION_DELETED = "The conversation was deleted while this was being answered."
STOPPED_EMPTY = "Stopped before the first word."
ENDED_BECAUSE = {"length": "Ended at the longest answer allowed (see Settings).",
                 "context": "Ended because the context is full. Start a new conversation to make room."}
REPEATED = ("It repeats itself, as small models do at low temperatures. A larger model does so less, and so does "
            "the preset “Creative” in Settings.")
ANSWER_BROKE_OFF = "The answer broke off here"
ANSWER_FAILED = "No answer"
APP_ENDED = "The app was closed while this answer was being written. Ask again for the rest."
ENGINE_HUNG = "The engine did not stop when it was told to, so it was ended. The next request starts a new one."
ENGINE_SILENT = ("The engine had not answered for {seconds} s: its process was stopped or stuck, so it was ended. The "
                 "next request starts a new one.")
ENGINE_STUCK = ("The engine came no step further for far longer than its steps take, so it was ended. The next request "
                "starts a new one.")
UNEXPECTED = "Something inside went wrong ({kind}). The app is still running; try again, or see the log."
COPIED = "Copied"
READ_ALOUD = "Read aloud"
READ_SILENT = "Stop reading"
MEANWHILE = "What it contains"
MEANWHILE_ASK = ("You can ask now. The answer starts when everything is read, or at once from the pages read so far, "
                 "if you choose that.")
MEANWHILE_MORE = "Look into it while the model reads: a chapter opens its page."
START_MORE = ("The answer is written from {scope}, and the strip shows which pages the model looked at. "
              "Press Race to see the same answer with and without speculation.")
LEAD_IN = "Under: {words}"  # the line that introduces a list, the first row of a table
IN_CONTEXT = "In context"  # the sentences around a quotation
QUOTING = "quoting p. {label}"
QUOTE_EXACT = "these words stand there"
QUOTE_PARTLY = "{percent} % of these words stand there in one piece"
QUOTE_ELSEWHERE = "the answer says p. {label}"
QUOTE_MORE = "and {more} more places"
QUOTE_MISSING = "not found in the document"
QUOTE_MISSING_HELP = "The program looked for these words on every page and did not find them."
NO_PASSAGE = "no passage found for this sentence"
NO_PASSAGE_HELP = ("No passage of the document holds enough of this sentence's words. It may still say the same in "
                   "other words.")
NO_PASSAGES = ("No passage found for {missing} of {count} sentences. Words were compared, not meaning: a sentence "
               "without this mark may be wrong too.")
ALL_PASSAGES = ("A passage with similar words was found for each of {count} sentences. That does not make them right.")
