"""``/v1/models``: the one model that answers, by a name that stays the same before and after it is loaded."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from triforce_core import ModelInfo

from ..app.services import Services
from .problems import Problem, answered

_LOOK_EVERY = 0.05


class Models:
    def __init__(self, services: Services) -> None:
        self._queue, self._services = services.queue, services
        self._since = int(time.time())

    @property
    def id(self) -> str:
        """The checkpoint's own name, without its path; of a server elsewhere what that one calls it."""
        name = self._queue.config.model
        if self._services.sends_to:
            name = self._queue.model.name if self._queue.model else "remote"
        return re.sub(r"[^\w.-]+", "-", PurePath(name).name)

    async def loaded(self) -> ModelInfo:
        """The model, once the engine has it. Raises Problem where it could not be loaded."""
        await self._settled()
        if self._queue.model is None:
            raise Problem(503, "engine_not_running", self._queue.problem)
        return self._queue.model

    async def check(self, name: Any) -> None:
        """Raises Problem where it is another."""
        if self._services.sends_to:
            await self._settled()
        if name != self.id:
            raise Problem(404, "model_not_found", f"There is no model {str(name)[:200]!r} here", param="model",
                          remedy=f"Ask for {self.id!r}.")

    def describe(self) -> dict[str, Any]:
        """max_model_len: tokens for document, conversation and answer, under vLLM's name; where it is known."""
        model = self._queue.model
        known = {"max_model_len": model.max_context} if model else {}
        return {"id": self.id, "object": "model", "created": self._since, "owned_by": "triforce-chat"} | known

    @answered
    async def all(self, request: Request) -> Response:
        await self._settled()
        return JSONResponse({"object": "list", "data": [self.describe()]})

    @answered
    async def one(self, request: Request) -> Response:
        await self.check(request.path_params["model"])
        await self._settled()
        return JSONResponse(self.describe())

    async def _settled(self) -> None:
        """Until the engine has a model or cannot have one: who asks for models wants to know how long a context is."""
        while self._queue.model is None and self._queue.state == "starting":
            await asyncio.sleep(_LOOK_EVERY)
