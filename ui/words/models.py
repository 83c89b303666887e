"""The models tab."""

from __future__ import annotations

TAB = "Models"
TITLE = "Models on this machine"
HELP = ("Found in the Hugging Face cache, where LM Studio, Ollama and llama.cpp keep models, and in a folder of yours. "
        "Nothing is loaded or downloaded until you press a button that says so. Memory means what is free now, beside "
        "the loaded model.")
NO_FOLDER = "There is no folder {folder}. Give the full path of one, or leave the line empty."
NO_REPO = ("“{given}” is no repository of the hub: OWNER/NAME is needed, such as Qwen/Qwen3-4B-Instruct-2507. Nothing "
           "was sent.")
BUSY = "{what} has to wait: {doing}. Press the button again when that is done, or cancel it."
LARGER = ("{repo} is larger on the hub than you agreed to, so the download was stopped. Look it up above to see its "
          "size and licence as they are now.")
FOLDER = "Look in this folder too"
FOLDER_HELP = "A folder with GGUF files, or with checkpoints, each in a folder with its config.json. May be left empty."
LOOK = "Look for models"
REPO = "Download a model from the Hugging Face hub"
REPO_HELP = "OWNER/NAME. Looking it up contacts the hub and shows size and licence; nothing is downloaded yet."
ASK = "Look it up"
FETCH = "Download"
OFFER = "{files} files, {size}, {missing} still to download. Licence: {licence}. Stored in {folder}; {free} are free."
DOING = {"triforce_core.models.survey:Survey": "Looking for models",
                "triforce_core.models.hub:Offer": "Asking the hub", "triforce_core.models.hub:Fetch": "Downloading"}
PROBLEM = "That did not work"
LISTED = "Models to download"
LISTED_HELP = ("Published models that this app runs, as of {date}. Whether one fits is calculated from its shape and "
               "the memory that is free now. Speeds are modelled, not measured: the most that the memory allows plain "
               "decoding. The list comes with the app: nobody was asked for it, and nothing was downloaded.")
RECOMMENDED = "Recommended for this machine"
NONE_RECOMMENDED = ("None of them would run well on this machine: they need more memory, or would write fewer than "
                    "four tokens a second or read fewer than fifty.")
FITTING, NOT_FITTING = "Others that fit here ({count})", "Those that do not fit here ({count})"
BY_MACHINE = "What fits on which machine"
BY_MACHINE_HELP = ("Tokens of context that fit, by calculation (K: thousands); a dash where the model does not run. "
                   "Weights are in bf16, or rounded to int4 by this app where that is said. Beside a card, the context "
                   "may lie in host memory (48 GB or more).")
IN_FORM = "{tokens} in {weights}"
MODEL = "Model"
DOWNLOADS = "{size} in {precision}"
DRAFTED_BY = "Draft model: {name}, {size}."
_FITS = ("here with {tokens} tokens of context: {need} of {have} free. Writes at most about {rate} tokens/s with {at} "
         "tokens of context, and reads {book} tokens in {wait} at least, modelled.")
FITS, FITS_ROUNDED = f"Fits {_FITS}", f"Rounded to {{weights}} when it is loaded, it fits {_FITS}"
IS_HERE = "on this machine"
GATED = "terms to accept"
GET = "Download…"
GET_QUESTION = "Download {name}?"
GET_SIZE = "{size} come from the Hugging Face hub ({repo}). Licence: {licence}."
GET_BOTH = "{size} come from the Hugging Face hub: {repo}, and its draft model {drafter}. Licence: {licence}."
GET_PLACE = "Stored in {folder}, where {free} are free. Your documents stay here; nothing has been sent so far."
GET_TERMS = ("Its owners want their terms accepted first: do so on the hub's page of the model, with an account, then "
             "run “hf auth login” in a terminal.")
GET_FULL = "There is not enough room: {folder} has {free} free, and {size} are needed. Free some space first."
GET_YES = "Yes, download {size}"
BUILTIN = {"builtin": "The built-in pair", "built-in draft": "the built-in draft"}
BUILTIN_DRAFTS = BUILTIN | {"builtin": "the built-in pair"}
ABOUT_BUILTIN = ("It finds the sentences that answer a question and quotes them, in English. It cannot count, "
                        "compare or say anything in its own words.")
SOURCE = {"built-in": "comes with the app", "cache": "in the Hugging Face cache", "folder": "in a folder",
          "LM Studio": "in LM Studio's folder", "Ollama": "in Ollama's store", "llama.cpp": "in llama.cpp's cache"}
MILLIONS = "{count:.1f} million weights"
BILLIONS = "{count:.1f} billion weights"
UP_TO = "up to {tokens} tokens"
ROOM = ("With {tokens} tokens: weights {weights}, keys and values {kv}, drafts {drafts}; {need} in all, of {have} "
        "free ({mode}).")
FITS_TITLE = "What fits here, and how fast"
FITS_HELP = ("Speeds are modelled, not measured: the most that the bandwidth of this memory, measured just now, "
             "allows plain decoding at that length.")
WEIGHTS = {"same": "Weights as they are", "int8": "Weights rounded to int8", "int4": "Weights rounded to int4"}
FIT = "{tokens} tokens {need} ({mode})"
FIT_FAST = FIT + ", about {rate} tokens/s"
FITS_NOT = "{tokens} tokens do not fit"
WOULD_FIT = "{tokens} tokens of context would fit."
LOAD = "Load"
LOAD_WITH = "Load with {draft} as draft model"
LOAD_BEST = "Load as recommended here: {how}"
BEST = {"int8": "weights in int8", "int4": "weights in int4"}
BEST_KV = "keys and values in {kv}"
BEST_DRAFT = "{draft} as draft model"
LOAD_ALONE = "Load without a draft model"
LOADED = "Load again"
NOW = "loaded"
LOADING = "loading"
STARTING = "Starting the engine"
STOPPED = "not loaded"
LOADED_NOW = "Loaded now: {model}."
NOT_DRAFTS = "Models that cannot draft for it, and why"
ELSEWHERE = {  # --engine -> why no model of this machine can be loaded
    "remote": ("The server named on the command line answers, with a model of its own: models on this machine have no "
               "part in it. To use them, start the app without --engine remote."),
}
ANSWERS_NOW = "Answering now: {model}."
