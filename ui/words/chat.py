"""The chat: asking, answers under way and ended, checked quotations."""

from __future__ import annotations

APP_ENDED = "The app was closed while this answer was being written. Ask again for the rest."
ENGINE_HUNG = "The engine did not stop when it was told to, so it was ended. The next request starts a new one."
ENGINE_SILENT = ("The engine had not answered for {seconds} s: its process was stopped or stuck, so it was ended. The "
                 "next request starts a new one.")
ENGINE_STUCK = ("The engine came no step further for far longer than its steps take, so it was ended. The next request "
                "starts a new one.")
UNEXPECTED = "Something inside went wrong ({kind}). The app is still running; try again, or see the log."
