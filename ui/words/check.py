"""``--check``: what this machine can run."""

from __future__ import annotations

ROW_ENGINE = "Engine"
CANNOT_RUN = "This machine cannot run it: {why}"
CANNOT_LOAD = "It cannot be loaded: {why}"
APP = "App"
DISK = "Disk"
FREE = "{free} free of {total}"
PACKAGES = "Packages"
FOLDERS = "Folders"
NETWORK = "Network"
READINGS = "Readings"
OFFLINE = "off (models are only taken from this machine)"
REMOTE = "documents and questions are sent to {url}"
DOWNLOAD = "a model named by repo id may be downloaded"
MISSING = "not installed"
MODEL = "{name}, draft {draft}, {size} on disk"
DRAFTS = "Drafts"
WEIGHTS = "Weights"
LONGEST = "{tokens} tokens fit, of {most} that the model can"
ON_CHIP = "all on the GPU {on_chip}, with keys and values in host memory {offloaded}"
PLAN = "Plan"
PLAN_FOR = "for {tokens} tokens"
PARTS = {
    "weights": "weights", "draft_weights": "draft model", "weight_copy": "quantised copy for drafts",
    "resident_kv": "keys and values", "retrieval": "retrieval cache", "draft_cache": "draft model's cache",
    "streams": "stream buffers", "workspace": "workspace", "reserve": "kept free",
}
PER_TOKEN = "{size} ({token} KiB per token)"
RESIDENT = "{size} ({resident} of {layers} layers; {token} KiB per token in all)"
TOGETHER = "together"
OF_FREE = "{need} of {have}"
HOST = "in host memory"
