"""Who wrote each token, round by round."""

from __future__ import annotations

TRACE = "Who wrote it"
TRACE_OFF = "Plain text"
TRACE_UNKNOWN = "This answer's tokens were not recorded."
TRACE_TOKENS = "The answer token by token; arrow keys move"
TRACE_HINT = "Point at a token, or move with the arrow keys: who wrote it, how sure the model was, and where it looked."
TRACE_ATTENTION = "The strip shows the attention of"
TRACE_REACH = (("round", "the token's round"), ("sentence", "its sentence"), ("answer", "the answer"))
TRACE_PASSAGES = "Attention, not evidence."
TRACE_WORDS = {"token": "Token", "chance": "Probability", "round": "Round", "attended": "Attended",
               "unknown": "not recorded (see Settings, Token details)", "unmeasured": "not measured in this round"}
ROUND = "Round"
ROUNDS = "Rounds: {rounds} full passes"
ROUNDS_HELP = "Each bar is one pass of the full model: its height is the tokens it settled, its colours who wrote them."
ROUNDS_TABLE = "All rounds as a table"
ROUNDS_CAPTION = "Accepted of tested tokens by tier, and milliseconds by stage"
ROUND_WORDS = "Round {number}: {tokens} tokens in {milliseconds} ms"
STAGES_TITLE = "Where a round's time goes"
STAGES = {"n-gram": "copying", "draft": "small model", "retrieval": "retrieval tier", "verify": "full pass",
          "select": "choosing chunks", "other": "the rest"}
