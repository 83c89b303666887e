"""Figures of an answer, live and kept, and how they went over time."""

from __future__ import annotations

THIS_ANSWER = "This answer"
LAST_ANSWER = "Last answer"
STATISTICS = "Statistics"
NO_ANSWER = "Statistics appear here."
RATE = "tok/s"
SPEED = "speed"
SPEED_HELP = "Tokens per second after the first one; reading the question is not counted."
FIRST_TOKEN = "first token"
FIRST_TOKEN_HELP = "From pressing Enter to the first word."
PER_PASS = "tokens per full pass"
PER_PASS_SHORT = "per full pass"
PER_PASS_HELP = "How many tokens one pass of the full model over the whole document settles. Plain decoding: 1."
STREAMED = "PCIe: {rate}/s from host memory"
STREAMED_HELP = "The model's cache is larger than the GPU's memory: each full pass streams it there from host memory."
DETAILS = "Details"
TIMES_PLAIN = "{factor:.1f}× plain"
TIMES_PLAIN_HELP = "Plain decoding wrote {rate} tok/s when this question was raced on the same pages."
ANSWERED_BY = "Model: {model}"
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
SPECULATION_PENDING = "TriForce: known with the first words"
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
