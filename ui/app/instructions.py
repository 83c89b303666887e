"""Instructions of a conversation (the model's system text): which ones hold, and whether the model follows any."""

from __future__ import annotations

from collections.abc import Callable

from triforce_core import ModelInfo, TriForceError

from .conversations import Conversations
from .tab_view import TabView

INSTRUCT_LONG = "These instructions have {count} characters, and were not saved"
INSTRUCT_MOST = "{most} at most"
NO_INSTRUCTIONS = "The loaded model follows no instructions"
NO_INSTRUCTIONS_REMEDY = "Remove them (Instructions, above the chat), or load a chat model (Models)."

LONGEST = 4000  # characters: more would take the room that is kept for questions and answers


class Instructions:
    """See the module. model: the one that is loaded, None before."""

    def __init__(self, conversations: Conversations, model: Callable[[], ModelInfo | None]) -> None:
        self._conversations, self._model = conversations, model

    @property
    def followed(self) -> bool:
        """Whether the model does; so long as none is loaded, nobody is told that it does not."""
        model = self._model()
        return model is None or model.instructions

    def of(self, view: TabView) -> str:
        """Of the conversation that is shown, or that the next question begins."""
        talk = self._conversations.get(view.conversation)
        return talk.system if talk and talk.document == view.document else view.system

    def keep(self, view: TabView, words: str) -> None:
        """Raises TriForceError where they are too long, or the model follows none ("" takes them away)."""
        words = words.strip()
        if len(words) > LONGEST:
            raise TriForceError(INSTRUCT_LONG.format(count=len(words)),
                                allowed=INSTRUCT_MOST.format(most=LONGEST))
        self._must_be_followed(words)
        talk = self._conversations.get(view.conversation)
        if talk and talk.document == view.document:
            self._conversations.instruct(talk.id, words)
        else:
            view.system = words
        view.instructing, view.notice = False, None

    def check(self, view: TabView) -> None:
        """Before a question is asked. Raises TriForceError: instructions are never dropped silently."""
        self._must_be_followed(self.of(view))

    def _must_be_followed(self, words: str) -> None:
        if words and not self.followed:
            raise TriForceError(NO_INSTRUCTIONS, remedy=NO_INSTRUCTIONS_REMEDY)
