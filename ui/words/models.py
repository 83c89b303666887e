"""The models tab."""

from __future__ import annotations

TAB = "Models"
TITLE = "Models on this machine"
HELP = ("Looked for in the Hugging Face cache and in a folder of yours. Nothing is loaded or fetched until you "
               "press a button that says so. Memory is what is free now, beside the model that is loaded.")
FOLDER = "Look in this folder too"
FOLDER_HELP = "A folder with checkpoints, each in a folder with its config.json. May stay empty."
LOOK = "Look for models"
REPO = "Fetch a model from the Hugging Face hub"
REPO_HELP = "OWNER/NAME. Looking it up goes out to the hub and shows size and licence; nothing is fetched by it."
ASK = "Look it up"
FETCH = "Fetch it"
OFFER = "{files} files, {size}, {missing} of it not here yet. Licence: {licence}."
DOING = {"triforce_core.models.survey:Survey": "Looking for models",
                "triforce_core.models.hub:Offer": "Asking the hub", "triforce_core.models.hub:Fetch": "Fetching"}
PROBLEM = "That did not work"
FAILED = "{model} could not be loaded"
BUILTIN = {"builtin": "The built-in pair", "built-in draft": "the built-in draft"}
ABOUT_BUILTIN = ("It finds the sentence that answers a question and quotes it, in English. It cannot summarise, "
                        "count, compare or say that there is no answer.")
SOURCE = {"built-in": "comes with the app", "cache": "in the Hugging Face cache", "folder": "in a folder"}
MILLIONS = "{count:.1f} million weights"
BILLIONS = "{count:.1f} billion weights"
UP_TO = "up to {tokens} tokens"
ROOM = ("With {tokens} tokens: weights {weights}, keys and values {kv}, drafts {drafts}; all in all {need} of "
               "{have} free ({mode}).")
WOULD_FIT = "{tokens} tokens of context would fit."
LOAD = "Load it"
LOAD_WITH = "Load it, {draft} drafts"
LOAD_ALONE = "Load it without a draft model"
LOADED = "Load it again"
NOW = "loaded"
LOADED_NOW = "Loaded now: {model}."
NOT_DRAFTS = "What cannot draft for it, and why"
ELSEWHERE = {  # --engine -> why no model of this machine can be loaded
    "remote": ("The server named on the command line answers, with a model of its own: models on this machine have no "
               "part in it. To use them, start the app without --engine remote."),
    "scripted": ("The scripted engine answers, without any model: models on this machine have no part in it. To use "
                 "them, start the app without --engine scripted."),
}
ANSWERS_NOW = "Answering now: {model}."
