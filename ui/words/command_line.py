"""The command line: its help, and what the terminal says."""

from __future__ import annotations

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
    "model": "'builtin', a folder, a GGUF file, or a Hugging Face repo id that is already downloaded",
    "draft_model": "small model that drafts: 'auto', 'none', a folder, a GGUF file or a repo id",
    "mode": "where the model and its cache live (default: the settings tab's, which is auto)",
    "dtype": "number format; float32 is the exact one (default: the settings tab's)",
    "weights": "round the model's weights to int8 or int4 when they are loaded (default same: as published)",
    "kv": ("keys and values: same as products, int8 in half the memory, or int4 in less than a third and less exactly "
           "(default auto: on a CPU int8 where only that fits)"),
    "thinking": "let a model reason before it answers, where its chat template leaves the choice",
    "device": "torch device, for example cuda:0 (default auto)",
    "gpus": "GPUs of this machine that hold the model together (default 1)",
    "max_context": "tokens for document and conversation together (default: what the model and memory allow)",
    "gpu_memory_limit": "GiB of the GPU's memory to use at most, as if it had no more (default none)",
    "data_dir": "keep library, chats and caches here instead of the usual places",
    "offline": "never use the network (this is the default)",
    "allow_download": "let a model named by repo id be downloaded",
    "engine": "triforce, autoregressive (no speculation), or remote (a server elsewhere)",
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
NOT_LOADED = "The model could not be loaded: {why}"
STOPPING_APP = "Stopping. Documents and conversations are kept."
PORT_BUSY = "Port {port} is in use"
PORT_REMEDY = "Choose another with --port, or leave --port out to take the next free one."
NO_PORT = "No free port between {first} and {last}"
NEEDS_URL = "--engine remote has no server"
NEEDS_URL_REMEDY = "Give its address with --base-url http://HOST:PORT/v1."
URL_UNUSED = "--base-url and --remote-model belong to --engine remote"
VIBE_MODE = "GRADIO_VIBE_MODE is set, which lets a browser run code on this machine"
VIBE_MODE_REMEDY = "Unset it and start again."
