"""``/v1/models``: the one model that answers."""

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

_SETTLE_EVERY = 0.05  # seconds between two looks whether the model is loaded


class Models:
    """The one model that answers, by a name that stays the same before and after it is loaded."""

    def __init__(self, services: Services) -> None:
        self._queue, self._services = services.queue, services
        self._since = int(time.time())

    @property
    def id(self) -> str:
        """The checkpoint's own name, without its path, or what a server elsewhere calls its model."""
        name = self._queue.config.model
        if self._services.sends_to:
            name = self._queue.model.name if self._queue.model else "remote"
        return re.sub(r"[^\w.-]+", "-", PurePath(name).name)

    async def loaded(self) -> ModelInfo:
        """Return the model, once the engine has it. Raises Problem where it could not be loaded."""
        await self._settled()
        if self._queue.model is None:
            raise Problem(503, "engine_not_running", self._queue.problem)
        return self._queue.model

    async def check(self, name: Any) -> None:
        """Raise Problem where the model has another name."""
        if self._services.sends_to:
            await self._settled()
        if name is not None and name != self.id:
            raise Problem(404, "model_not_found", f"There is no model {str(name)[:200]!r} here", param="model",
                          remedy=f"Ask for {self.id!r}.")

    def describe(self) -> dict[str, Any]:
        """Return the model; max_model_len, vLLM's name: tokens for document, conversation and answer, where known."""
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
        """Wait until the engine has a model or cannot have one: only then it is known how long a context is."""
        while self._queue.model is None and self._queue.state == "starting":
            await asyncio.sleep(_SETTLE_EVERY)
