"""Presets on the settings tab."""

from __future__ import annotations

TITLE = "Presets"
ACTIVE = "✓ {name}"
KEPT = "{name}: saved. It applies from the next question on; single settings can be changed below."
PRESETS = {  # name -> label, help
    "precise": ("Precise", "Always the likeliest word. The same question has the same answer."),
    "balanced": ("Balanced", "Some variety, close to the text. Asking again gives another answer."),
    "creative": ("Creative", "Much variety: for ideas, not for facts."),
    "fast": ("Maximum speed", "The likeliest words, which drafts guess best; no details of single tokens."),
}
