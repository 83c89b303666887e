"""The settings tab."""

from __future__ import annotations

SETTINGS_TAB = "Settings"
SETTINGS_KEPT = "Saved. The settings apply from the next question on."
SETTINGS_ENGINE = "Saved. The engine restarts with the settings; documents come back from their saved readings."
SETTINGS_BAD = "Not changed"
SETTINGS_SAVE = "Save"
SETTINGS_RESET = "Restore defaults"
OR_AUTO = "or 'auto'"
A_WHOLE_NUMBER = "a whole number"
A_NUMBER = "a number"
NOTHING = "empty"
ANSWERS_GROUP = "Answers"
LONGEST_MEASURED = "In tokens. In the open document 100 tokens are {words} words."
SPECULATION_GROUP = "Speculation"
SPECULATION_GROUP_HELP = "None of these changes what the model would say: only how fast it says it."
ENGINE_GROUP = "Engine"
SETTINGS = {  # name -> label, help
    "temperature": ("Temperature", "0 always takes the likeliest word. Higher is more varied."),
    "top_p": ("Top-p", "Draw only from the likeliest words that together reach this probability. 1 keeps all."),
    "max_new_tokens": ("Longest answer", "In tokens, which are words or pieces of words."),
    "seed": ("Seed", "The same seed, question and settings give the same answer."),
    "engine": ("Decoding", "Automatic uses TriForce where a draft is possible. Plain is one token per pass."),
    "gamma1": ("Draft length (gamma 1)", "Tokens the small model drafts at a time, 0 to 64, or auto."),
    "gamma2": ("Tokens per full pass (gamma 2)", "Gathered before the full model checks them, 1 to 256, or auto."),
    "budget": ("Retrieval budget", "Tokens of the document in the retrieval cache, from 64 up, or auto."),
    "chunk_size": ("Chunk size", "The document is retrieved in chunks of so many tokens."),
    "retrieval_weights": ("Weights of the intermediate verifier", "Automatic: on a GPU with room, a smaller copy."),
    "ngram": ("Copied text", "Words that stood in the document or the conversation before are drafted by copying."),
    "details": ("Token details", "Keep each token's probability and the likeliest others, for 'Who wrote it'."),
    "quotes": ("Exact quotes", "Text between quotation marks is held to what the document says, word for word."),
    "mode": ("Where it runs", "Automatic takes the GPU if there is one, and the host's memory for what is too large."),
    "dtype": ("Number format", "Exact computes in float32: identical words with and without speculation, but slower."),
}
CHOICES = {
    "engine": (("Automatic", "auto"), ("TriForce", "triforce"), ("Plain", "autoregressive")),
    "retrieval_weights": (("Automatic", "auto"), ("The model's own", "same")),
    "ngram": (("Automatic", "auto"), ("Always", "straight"), ("Off", "off")),
    "details": (("On", "on"), ("Off", "off")),
    "quotes": (("Automatic", "auto"), ("On", "on"), ("Off", "off")),
    "mode": (("Automatic", "auto"), ("All on the GPU", "on-chip"), ("Cache in host memory", "offload"),
             ("CPU", "cpu")),
    "dtype": (("Automatic", "auto"), ("Exact (float32)", "float32")),
}
