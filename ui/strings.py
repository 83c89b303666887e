"""Every word that a person sees, in one place. ``{name}`` is filled in where the string is used."""

from __future__ import annotations

APP = "TriForce Chat"
TAGLINE = "Whole documents, exact words, faster"

# -- the command line -----------------------------------------------------------------------------------------------
COMMAND = ("A page on this machine for talking with whole long documents. Without arguments it starts on the built-in "
           "model and opens the browser.")
COMMAND_MORE = "Nothing leaves this machine. Stop with Ctrl+C; documents and conversations are kept."
FLAGS = {
    "files": "documents to add to the library; the first is opened",
    "host": "address to listen on (default 127.0.0.1; any other needs --auth-file)",
    "port": "port to listen on (default 7860, or the next free one)",
    "allow_host": "another name under which this machine may be reached (repeatable)",
    "allow_origin": "a web page's origin that may use the API, such as http://localhost:5173 (repeatable)",
    "no_browser": "do not open a browser window",
    "model": "'builtin', a folder, or a Hugging Face repo id that is already downloaded",
    "draft_model": "small model that drafts: 'auto', 'none', a folder or a repo id",
    "mode": "where the model and its cache live (default: the settings tab's, which is auto)",
    "dtype": "number format; float32 is the exact one (default: the settings tab's)",
    "device": "torch device, for example cuda:0 (default auto)",
    "gpus": "GPUs of this machine that hold the model together (default 1)",
    "max_context": "tokens for document and conversation together (default: what the model and memory allow)",
    "gpu_memory_limit": "GiB of the GPU's memory to use at most, as if it had no more (default none)",
    "data_dir": "keep library, chats and caches here instead of the usual places",
    "offline": "never use the network (this is the default)",
    "allow_download": "let a model named by repo id be downloaded",
    "engine": ("triforce, autoregressive (no speculation), scripted (no model; --model may name a script), or remote "
               "(a server elsewhere)"),
    "base_url": "with --engine remote: the OpenAI-compatible server that gets documents and questions (key: "
                "TRIFORCE_REMOTE_KEY)",
    "remote_model": "with --engine remote: which of the server's models (default: its first)",
    "auth_file": "file of user:password lines; login is then required",
    "api_key_file": "file of API keys, one a line; /v1 then needs one (TRIFORCE_API_KEY holds one, too)",
    "log_level": "how much to log to stderr (default warning); never document or chat text",
    "tune": "forget what passes cost on this machine, and measure it again before the first reading",
    "check": "say what this machine can run and why, then exit (1 if nothing)",
}
RUNNING = "TriForce Chat is running at {url}\nStop with Ctrl+C."
STOPPING_APP = "Stopping. Documents and conversations are kept."
PORT_BUSY = "Port {port} is in use"
PORT_REMEDY = "Choose another with --port, or leave --port out to take the next free one."
NO_PORT = "No free port between {first} and {last}"
NEEDS_AUTH = "Listening on {host} would let others on the network in"
NEEDS_AUTH_REMEDY = "Give --auth-file with user:password lines, or leave --host at 127.0.0.1."
AUTH_FILE_BAD = "{path} has no usable line"
AUTH_FILE_ALLOWED = "one user:password per line, the password at least 8 characters long"
AUTH_FILE_MISSING = "{path} cannot be read"
SENDS_TO = "Text leaves this machine: documents and questions are sent to {url}"
NEEDS_URL = "--engine remote has no server"
NEEDS_URL_REMEDY = "Give its address with --base-url http://HOST:PORT/v1."
URL_UNUSED = "--base-url and --remote-model belong to --engine remote"
NEEDS_KEY = "This needs an API key (Authorization: Bearer ...) or the cookie of a page that has logged in."
KEY_FILE_MISSING = "{path} cannot be read"
KEY_FILE_EMPTY = "{path} has no key"
KEY_SHORT = "An API key is shorter than {least} characters"
KEYS_ALLOWED = "one key per line, at least 20 characters long (for example from: openssl rand -hex 24)"
VIBE_MODE = "GRADIO_VIBE_MODE is set, which lets a browser run code on this machine"
VIBE_MODE_REMEDY = "Unset it and start again."
CANNOT_RUN = "This machine cannot run it: {why}"

# -- library --------------------------------------------------------------------------------------------------------
DROP_HERE = "Drop documents here, or click"
DROP_HELP = "PDF, text, Markdown, HTML,\nWord or EPUB"
LIBRARY_EMPTY = "No documents yet. Drop one above."
DELETE = "Delete"
DELETE_SURE = "Really delete?"
DELETE_DOCUMENT = "Delete {title} with its conversations"
DELETE_CONVERSATION = "Delete this conversation"
NEW_CONVERSATION = "New conversation"
FILE_MISSING = "{name} cannot be read: there is no such file."
FILE_EMPTY = "{name} is empty (0 bytes). Choose a file with content."
UPLOAD_REFUSED = "That file did not come through this page's upload. Drop it on the library again."
NOT_ADDED = "Not added"
SAMPLE_NAME = "The TriForce Chat handbook.pdf"
PAGES_OF = "{pages} pages"
PAGE_ONE = "1 page"
PHASES = {
    "extracting": "Taking the text out", "locked": "Needs its password", "failed": "Could not be read",
    "waiting": "Waiting for the engine", "loading": "Starting the engine",
    "tokenize": "Turning the text into tokens", "read": "Reading",
    "restore": "Bringing back the saved reading", "save": "Saving the reading", "problem": "Not read",
    "tune": "Measuring this machine", "warm-up": "Preparing the engine for it", "draft": "Reading with the draft model",
    "too_long": "Longer than the context", "ready": "In context", "resting": "Read before", "closed": "Not read yet",
}

# -- document head --------------------------------------------------------------------------------------------------
WELCOME = "Talk with a whole document"
WELCOME_MORE = ("Drop a document into the library. All of it goes into the model's context, page by page: nothing is "
                "cut, nothing is searched for instead of read, nothing leaves this machine.")
WELCOME_REMOTE = ("Drop a document into the library. All of it is sent to the server with every question, page by "
                  "page: nothing is cut, nothing is searched for instead of read.")
OPEN_SAMPLE = "Open the handbook, the first document to try"
IN_CONTEXT = "{tokens} tokens in context: every one of {pages}"
READ_IN = "read in {seconds}"
REOPENED_IN = "read in {seconds}, reopened in {again}"
EXTRACTING = "Taking the text out: page {done} of {total}"
EXTRACTING_START = "Taking the text out of the file"
READING_WAIT = "Waiting: the engine is busy with another job"
READING_LOAD = "Starting the engine"
READING_LOAD_STAGE = "Starting the engine: {stage}"
TOKENIZING = "Turning the text into tokens: {done} of about {total}"
READING = "Reading {done} of {total} tokens"
READING_SAVED = "Bringing back the saved reading"
READING_SAVE = "Saving the reading for next time"
READING_TUNE = "Measuring what this machine can do, once"
READING_WARM = "Preparing the engine for this document"
READING_RATE = "{rate} tokens/s"
READING_ETA = "{eta} left"
CANCEL = "Cancel"
CANCELLING = "Cancelling…"
READING_CANCELLED = "Reading was cancelled."
READ_NOW = "Read it now"
READ_AGAIN = "Try again"
CHOOSE_PAGES = "Choose pages"
DOCUMENT_GONE = "This document's text is no longer in the library. Add the file again."
RESTING = "Not in the cache now. Asking brings it back from its saved reading."
NOT_READ_YET = "Not in the model's context yet."
WARNINGS = "About this file"

# -- page choice and password ---------------------------------------------------------------------------------------
TOO_LONG_TITLE = "This document is longer than the context"
TOO_LARGE_TITLE = "This document needs more memory than is free"
KEEP_AS_IS = "Leave it"
CHOOSE_PAGES_FIRST = "The document is longer than the context. Choose the pages to read above, then ask again."
PASSWORD_TITLE = "This file is protected"
PASSWORD_HELP = "Enter its password. It is used once to take the text out and not kept."
PASSWORD = "Password"
UNLOCK = "Unlock"

# -- chat -----------------------------------------------------------------------------------------------------------
CHAT = "Chat"
ASK_PLACEHOLDER = "Ask about the whole document"
SEND = "Ask"
STOP = "Stop"
KEYS = "Enter asks · Shift+Enter new line · Esc stops · ? all keys"
OPEN_FIRST = "Open a document first"
OPEN_FIRST_MORE = "Choose one in the library, or drop a file there."
ONE_AT_A_TIME = "An answer is still being written"
ONE_AT_A_TIME_MORE = "Wait for it, or press Stop; then ask again."
STOPPING = "Stopping…"
QUEUED_NEXT = "Waiting for the engine"
PREPARING = "Getting the document ready"
THINKING = "Reading the question"
WRITING = "{rate} tok/s · {tokens} tokens"
STOPPED = "Stopped here by you."
STOPPED_EMPTY = "Stopped before the first word."
ENDED_BECAUSE = {"length": "Ended at the longest answer allowed (see Settings).",
                 "context": "Ended because the context is full. Start a new conversation to make room."}
ANSWER_BROKE_OFF = "The answer broke off here"
ANSWER_FAILED = "No answer"
APP_ENDED = "The app was ended while this answer was being written. Ask again for the rest."
ENGINE_HUNG = "The engine did not stop when it was told to, so it was ended. The next request starts a new one."
UNEXPECTED = "Something inside went wrong ({kind}). The app is still running; try again, or see the log."
COPY = "Copy"
COPIED = "Copied"
START_HERE = "Ask anything about it"
START_MORE = ("The answer is written from the whole text, and the strip shows which pages the model leaned on. "
              "Press Race to see the same answer with and without speculation.")
CITED_PAGE = "p. {label}"
QUOTING = "quoting p. {label}"
QUOTE_EXACT = "these words stand there"
QUOTE_PARTLY = "{percent} % of these words stand there in one piece"
QUOTE_ELSEWHERE = "the answer says p. {label}"
QUOTE_MORE = "and {more} more places"
ANSWERED_BY = "by {model}"
QUOTE_MISSING = "not in the document"
QUOTE_MISSING_HELP = "The program looked for these words on every page and did not find them."

# -- figures --------------------------------------------------------------------------------------------------------
THIS_ANSWER = "This answer"
LAST_ANSWER = "Last answer"
NO_ANSWER = "Figures of the answer appear here while it is written."
RATE = "tok/s"
SPEED = "speed"
SPEED_HELP = "Tokens per second after the first one; reading the question is not counted."
FIRST_TOKEN = "first token"
FIRST_TOKEN_SHORT = "first token"
FIRST_TOKEN_HELP = "From pressing Enter to the first word."
PER_PASS = "tokens per full pass"
PER_PASS_SHORT = "per full pass"
PER_PASS_HELP = "How many tokens one pass of the full model over the whole document settles. Plain decoding: 1."
STREAMED = "PCIe: {rate}/s from host memory"
STREAMED_HELP = "The model's cache is larger than the GPU's memory: each full pass streams it there from host memory."
TOKENS = "tokens"
TOKENS_SHORT = "tokens"
ACCEPTANCE = "Drafts accepted"
ACCEPTANCE_HELP = "Of the drafted tokens that the next tier tested, how many it accepted."
ACCEPTED = "Accepted of tested:"
WHO_WROTE = "Who wrote the tokens"
SPECULATION_ON = "TriForce on"
SPECULATION_OFF = "TriForce off"
SPECULATION_REMOTE = "Remote server"
NOT_REPORTED = "Tiers, acceptance and attention are not available: the server does not report them."
SPECULATION_PENDING = "TriForce: seen with the first words"
REUSED = "{reused} tokens reused from the cache, {new} read for this question."
TIERS = {
    "quote": ("exact quote", "Forced by the document: the words between quotation marks can only go on this way."),
    "n-gram": ("copied text", "Copied from where the same words stood before, and accepted by every check."),
    "draft": ("small model", "Drafted by the small model and accepted by every check."),
    "retrieval": ("retrieval tier", "Written by the full model's weights on the retrieved part of the cache."),
    "bonus": ("full model", "The extra token that the full pass yields when everything was accepted."),
    "recovered": ("full model, corrected", "Put by the full model in place of a rejected draft."),
}
TIER_TESTED = {"quote": "quotes, by the full model", "n-gram": "copied text, by the next tier",
               "draft": "small model, by retrieval tier",
               "retrieval": "retrieval tier, by full cache"}
TRACE = "Who wrote it"
TRACE_OFF = "Plain text"
TRACE_UNKNOWN = "This answer's tokens were not recorded."
TRACE_TOKENS = "The answer token by token; arrow keys move"
TRACE_HINT = "Point at a token, or move with the arrow keys: who wrote it, how sure the model was, and where it looked."
TRACE_ATTENTION = "Strip shows the attention of"
TRACE_REACH = (("round", "the token's round"), ("sentence", "its sentence"), ("answer", "the answer"))
TRACE_PASSAGES = "In the rounds of what is pointed at. Attention, not evidence."
TRACE_WORDS = {"token": "Token", "chance": "Probability", "round": "Round", "attended": "Attended",
               "unknown": "not recorded (see Settings, Token details)", "unmeasured": "not measured in this round"}
ROUND = "Round"
ROUNDS = "Rounds: {rounds} full passes"
ROUNDS_HELP = "Each bar is one pass of the full model: its height is the tokens it settled, its colours who wrote them."
ROUNDS_TABLE = "All rounds as a table"
ROUNDS_CAPTION = "Accepted of tested tokens by tier, and milliseconds by stage"
ROUND_WORDS = "Round {number}: {tokens} tokens in {milliseconds} ms"
STAGES_TITLE = "Where a round's time goes"
STAGES = {"n-gram": "copying", "draft": "small model", "retrieval": "retrieval tier", "verify": "full pass",
          "select": "choosing chunks", "other": "the rest"}

# -- document side --------------------------------------------------------------------------------------------------
STRIP = "Where the answer looked"
STRIP_HELP = "Attention, not evidence: how much of the model's attention each page got. Click a page to read it."
STRIP_EMPTY = "Each bar is a page. Bars grow while an answer is written."
STRIP_REMOTE = "Not available: the remote server does not report where it looked. Click a page to read it."
STRIP_PAGE = "Page {label}"
NOT_READ = "not in context"
PASSAGES = "Most attended passages"
PAGE_VIEW = "Page view"
PAGE_NUMBER = "Go to page"
PAGE_EMPTY = "This page has no text."
PAGE_BROKEN = "This page cannot be shown now."
FIND_BROKEN = "Search failed: Enter tries again"
SMALLER = "Smaller"
LARGER = "Larger"
THUMBNAILS = "All pages"
CLOSE_PAGE = "Close the page view"
FIND = "Find in the document"
HIT_BEFORE = "Hit before"
HIT_AFTER = "Next hit"
PREVIOUS = "Previous page"
NEXT = "Next page"
NO_PAGE = "Click a page in the strip, or a quotation's page in an answer, to read it here."
SPEED_OVER_TIME = "Speed while it was written"
ACCEPTED_OVER_TIME = "Drafts accepted while it was written"
SPEED_OF_ANSWERS = "Speed, answer by answer"
PASS_READS = "A full pass reads {size} in {milliseconds} ms: {rate}/s"
PASS_SHARE = ", {share} of the {rate}/s that a copy in the GPU's memory moves"
PASS_READS_HELP = "Weights, and keys and values of everything before it: the memory's bandwidth is what bounds it."
ENERGY = "{joules} J, {each} J a token"
ENERGY_HELP = "What all GPUs of this machine spent meanwhile, by NVIDIA's own counter."
HISTORY = "Answers about this document"
ASKED = "question"
JOULES = "J"

# -- engine ---------------------------------------------------------------------------------------------------------
ENGINE = "Engine"
ENGINE_STATES = {"starting": "Starting", "ready": "Ready", "failed": "Not running"}
ENGINE_BUSY = "Working"
ENGINE_FAILED = "The engine did not start"
MODEL = "Model"
DRAFT = "Draft"
MODE = "Mode"
DRAFTING = "Drafts"
WHY = "Why"
CONTEXT = "Context"
CONTEXT_TOKENS = "{tokens} tokens"
CONTEXT_UNKNOWN = "not reported by the server"
ABOUT = "about {tokens}"
CONTEXT_FITS = "{tokens} tokens, {fit} fit into memory"
WEIGHTS = "{model}, {size}"
MEMORY = "Memory"
GPU_MEMORY = "GPU"
MEMORY_USE = "{used} used, {free} free"
NUMBERS = "Numbers"
QUEUE = "Queue"
QUEUE_EMPTY = "empty"
QUEUE_LENGTH = "{waiting} waiting"
PROCESS = "Process"
NO_DRAFT = "none"

# -- race -----------------------------------------------------------------------------------------------------------
RACE = "Race"
RACE_TITLE = "The same question, with and without TriForce"
RACE_HELP = ("One after the other, from the same cached document and the same seed; then both are replayed side by "
             "side as fast as they were written.")
RACE_QUESTION = "Question"
RACE_START = "Start the race"
RACE_NEEDS_QUESTION = "What should they race on?"
RACE_NEEDS_QUESTION_MORE = "Write a question, then press Race."
RACE_LANES = ("Plain decoding", "TriForce")
RACE_REMOTE = "A race needs the engine of this machine"
RACE_REMOTE_MORE = "A remote server decodes in one way only. Start without --engine remote to race."
RACE_THIRD = (("No third lane", ""), ("Without copied text", "ngram=off"),
              ("Copied text only", "ngram=on, small_model=off"),
              ("Small model only", "middle_cache=none, ngram=off"),
              ("Middle tier on the newest tokens (StreamingLLM)", "middle_cache=streaming"),
              ("Short drafts: 4 tokens per full pass", "gamma2=4"))
RACE_THIRD_LABEL = "Third lane"
RACE_THIRD_HELP = "Choose one, or type any dials: gamma2=6, budget=512, ngram=off"
RACE_THIRD_BAD = "{part} is no dial of a third lane"
RACE_TIMES = "{factor:.2f} times plain decoding's speed"
RACE_LINE = "{name}: {speed} · {per_pass:.2f} tokens per full pass · {same}"
RACE_SHARE = "Share"
RACE_SVG = "Animated SVG"
RACE_PNG = "PNG"
RACE_WAITS = "Waiting for the first leg"
RACE_RECORDING = "{tokens} tokens, {rate} tok/s"
RACE_AGAIN = "Play again"
RACE_FASTER = "TriForce was {factor:.2f} times as fast"
RACE_SLOWER = "Speculation lost: TriForce ran at {factor:.2f} of plain decoding's speed"
RACE_SLOWER_WHY = ("Its drafts cost more than they saved here ({per_pass:.1f} tokens per full pass). That happens with "
                   "short documents, where one full pass is cheap, and where drafts are seldom accepted.")
RACE_SLOWER_COSTS = ("A round took {rest:.0f} ms of drafting and {verify:.0f} ms of full pass; plain decoding took "
                     "{plain:.0f} ms a token. It pays from {need:.1f} tokens per full pass on.")
RACE_EVEN = "No difference worth the name: {factor:.2f} times plain decoding's speed"
RACE_UNMEASURED = "Too short to measure a speed: ask for a longer answer"
RACE_SAME = "Same words: yes"
RACE_SAME_MORE = "{tokens} tokens, identical one by one."
RACE_DIFFERENT = "Same words: no"
RACE_DIFFERENT_MORE = "They part at token {token}."
RACE_DIFFERS_ROUNDING = ("In {dtype} a pass over several tokens rounds a little differently from a pass over one, and "
                         "a near-tie can fall the other way. Choose 'exact' numbers in Settings for identical words.")
RACE_DIFFERS_EXACT = ("With exact numbers this should not happen. Please report it with the document's length, the "
                      "seed and the settings.")
RACE_RECORDED = "Recorded on this machine: {model}, {dtype}, {device}."
RACE_EMPTY = "No race yet. It takes as long as two answers."
RACE_STOPPED = "The race was stopped."
RACE_FAILED = "The race did not finish"

# -- settings -------------------------------------------------------------------------------------------------------
SETTINGS_TAB = "Settings"
SETTINGS_KEPT = "Settings are kept. They apply from the next question on."
SETTINGS_ENGINE = "Settings are kept. The engine restarts with them; documents come back from their saved readings."
SETTINGS_BAD = "Not changed"
SETTINGS_SAVE = "Keep settings"
SETTINGS_RESET = "Back to defaults"
OR_AUTO = "or 'auto'"
A_WHOLE_NUMBER = "a whole number"
A_NUMBER = "a number"
NOTHING = "empty"
ANSWERS_GROUP = "Answers"
SPECULATION_GROUP = "Speculation"
SPECULATION_GROUP_HELP = "None of these changes what the model would say: only how fast it says it."
ENGINE_GROUP = "Engine"
SETTINGS = {  # name -> label, help
    "temperature": ("Temperature", "0 always takes the likeliest word. Higher is more varied."),
    "top_p": ("Top-p", "Draw only from the likeliest words that together reach this probability. 1 keeps all."),
    "max_new_tokens": ("Longest answer", "In tokens; a token is about three quarters of a word."),
    "seed": ("Seed", "The same seed, question and settings give the same answer."),
    "engine": ("Decoding", "Automatic uses TriForce where a draft is possible. Plain is one token per pass."),
    "gamma1": ("Draft length (gamma 1)", "Tokens the small model drafts at a time, 0 to 64, or auto."),
    "gamma2": ("Tokens per full pass (gamma 2)", "Gathered before the full model checks them, 1 to 256, or auto."),
    "budget": ("Retrieval budget", "Tokens of the document that the middle tier looks at, from 64 up, or auto."),
    "chunk_size": ("Chunk size", "The document is retrieved in chunks of so many tokens."),
    "refresh": ("What chooses the chunks", "Attention of the last full pass, or a comparison with each chunk's mean."),
    "retrieval_weights": ("Weights of the middle tier", "Automatic: on a GPU with room for it, a smaller copy."),
    "ngram": ("Copied text", "Words that stood in the document or the conversation before are drafted by copying."),
    "details": ("Token details", "Keep each token's probability and the likeliest others, for 'Who wrote it'."),
    "quotes": ("Exact quotes", "Text between quotation marks is held to what the document says, word for word."),
    "mode": ("Where it runs", "Automatic takes the GPU if there is one, and the host's memory for what is too large."),
    "dtype": ("Numbers", "Exact computes in float32: identical words with and without speculation, but slower."),
}
CHOICES = {
    "engine": (("Automatic", "auto"), ("TriForce", "triforce"), ("Plain", "autoregressive")),
    "refresh": (("Attention", "attention"), ("Chunk means", "chunk-means")),
    "retrieval_weights": (("Automatic", "auto"), ("The model's own", "same")),
    "ngram": (("Automatic", "auto"), ("For the full model", "straight"), ("For the small model", "on"), ("Off", "off")),
    "details": (("On", "on"), ("Off", "off")),
    "quotes": (("Automatic", "auto"), ("On", "on"), ("Off", "off")),
    "mode": (("Automatic", "auto"), ("All on the GPU", "on-chip"), ("Cache in host memory", "offload"),
             ("CPU", "cpu")),
    "dtype": (("Automatic", "auto"), ("Exact (float32)", "float32")),
}

# -- narrow screens -------------------------------------------------------------------------------------------------
PANES = (("library", "Library"), ("center", "Chat"), ("side", "Document"))
DISMISS = "Dismiss"
