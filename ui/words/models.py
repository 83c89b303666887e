"""The models tab."""

from __future__ import annotations

TAB = "Models"
TITLE = "Models on this machine"
HELP = ("Found in the Hugging Face cache, where LM Studio, Ollama and llama.cpp keep models, and in a folder of yours. "
        "Nothing is loaded or downloaded until you press a button that says so. Memory means what is free now, beside "
        "the loaded model.")
FOLDER = "Look in this folder too"
FOLDER_HELP = "A folder with GGUF files, or with checkpoints, each in a folder with its config.json. May stay empty."
LOOK = "Look for models"
REPO = "Download a model from the Hugging Face hub"
REPO_HELP = "OWNER/NAME. Looking it up contacts the hub and shows size and licence; nothing is downloaded yet."
ASK = "Look it up"
FETCH = "Download"
OFFER = "{files} files, {size}, {missing} still to download. Licence: {licence}."
DOING = {"triforce_core.models.survey:Survey": "Looking for models",
                "triforce_core.models.hub:Offer": "Asking the hub", "triforce_core.models.hub:Fetch": "Downloading"}
PROBLEM = "That did not work"
FAILED = "{model} could not be loaded"
BUILTIN = {"builtin": "The built-in pair", "built-in draft": "the built-in draft"}
ABOUT_BUILTIN = ("It finds the sentences that answer a question and quotes them, in English. It cannot count, "
                        "compare or say anything in its own words.")
SOURCE = {"built-in": "comes with the app", "cache": "in the Hugging Face cache", "folder": "in a folder",
          "LM Studio": "in LM Studio's folder", "Ollama": "in Ollama's store", "llama.cpp": "in llama.cpp's cache"}
MILLIONS = "{count:.1f} million weights"
BILLIONS = "{count:.1f} billion weights"
UP_TO = "up to {tokens} tokens"
ROOM = ("With {tokens} tokens: weights {weights}, keys and values {kv}, drafts {drafts}; all in all {need} of "
               "{have} free ({mode}).")
FITS = "What fits here"
WEIGHTS = {"same": "weights as they are", "int8": "rounded with --weights int8", "int4": "rounded with --weights int4"}
FIT = "{tokens} tokens {need} ({mode})"
FITS_NOT = "{tokens} tokens do not fit"
WOULD_FIT = "{tokens} tokens of context would fit."
LOAD = "Load"
LOAD_WITH = "Load with {draft} as draft model"
LOAD_ALONE = "Load without a draft model"
LOADED = "Load again"
NOW = "loaded"
LOADED_NOW = "Loaded now: {model}."
NOT_DRAFTS = "Models that cannot draft for it, and why"
ELSEWHERE = {  # --engine -> why no model of this machine can be loaded
    "remote": ("The server named on the command line answers, with a model of its own: models on this machine have no "
               "part in it. To use them, start the app without --engine remote."),
    "scripted": ("The scripted engine answers, without any model: models on this machine have no part in it. To use "
                 "them, start the app without --engine scripted."),
}
ANSWERS_NOW = "Answering now: {model}."
