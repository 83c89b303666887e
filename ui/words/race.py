"""The race tab."""

from __future__ import annotations

RACE = "Race"
TITLE = "The same question, with and without TriForce"
HELP = ("One after the other, from the same cached document and the same seed; then both are replayed side by side, "
        "each as fast as it was written.")
QUESTION = "Question"
START = "Start the race"
NEEDS_QUESTION = "What should they race on?"
NEEDS_QUESTION_MORE = "Write a question, then press Race."
LANES = ("Plain decoding", "TriForce")
REMOTE = "A race needs the engine of this machine"
REMOTE_MORE = "A remote server decodes in one way only. Start without --engine remote to race."
THIRD = (("No third lane", ""), ("Without copied text", "ngram=off"),
              ("Copied text only", "ngram=straight, small_model=off, middle_cache=none"),
              ("Small model only", "middle_cache=none, ngram=off"),
              ("Short drafts: 4 tokens per full pass", "gamma2=4"))
THIRD_LABEL = "Third lane"
THIRD_HELP = "Choose one, or type settings: gamma2=6, budget=512, ngram=off"
THIRD_BAD = "{part} is not a setting of a third lane"
TIMES = "{factor:.2f} times plain decoding's speed"
LINE = "{name}: {speed} · {per_pass:.2f} tokens per full pass · {same}"
SHARE = "Share"
SVG = "Animated SVG"
PNG = "PNG"
WAITS = "Waiting for its turn"
RECORDING = "{tokens} tokens, {rate} tok/s"
AGAIN = "Play again"
FASTER = "TriForce was {factor:.2f} times as fast"
SLOWER = "Speculation lost: TriForce ran at {factor:.2f} of plain decoding's speed"
SLOWER_WHY = ("Its drafts cost more than they saved here ({per_pass:.1f} tokens per full pass). That happens with "
                   "short documents, where one full pass is cheap, and where drafts are seldom accepted.")
SLOWER_COSTS = ("A round took {rest:.0f} ms of drafting and {verify:.0f} ms of full pass; plain decoding took "
                     "{plain:.0f} ms a token. It pays from {need:.1f} tokens per full pass on.")
EVEN = "No real difference: {factor:.2f} times plain decoding's speed"
UNMEASURED = "Too short to measure a speed: ask for a longer answer"
SAME = "Same words: yes"
SAME_MORE = "{tokens} tokens, identical one by one."
DIFFERENT = "Same words: no"
DIFFERENT_MORE = "They part at token {token}."
DIFFERS_ROUNDING = ("In {dtype} a pass over several tokens rounds a little differently from a pass over one, and "
                         "a near-tie can fall the other way. Choose 'exact' numbers in Settings for identical words.")
DIFFERS_EXACT = ("With exact numbers this should not happen. Please report it with the document's length, the "
                      "seed and the settings.")
RECORDED = "Recorded on this machine: {model}, {dtype}, {device}."
EMPTY = "No race yet. It takes as long as two answers."
STOPPED = "The race was stopped."
FAILED = "The race did not finish"
