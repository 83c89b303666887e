"""``/v1/files``: the library under OpenAI's names. A file's id is the hash of its content."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message

from triforce_core import Document

from ..app.extraction import Extraction
from ..app.folders import plainly
from ..app.library import MAX_UPLOAD_BYTES, Entry
from ..app.services import Services
from ..app.tab_view import TabView
from ..page.formatting import text_line
from .messages import FileRef
from .problems import Problem, answered

_PREFIX = "file-"
_LOOK_EVERY = 0.05
_FORM_ROOM = 64 * 1024  # bytes of a form beside its file
_STATUS = {"ready": "processed", "failed": "error", "locked": "error"}


class Files:
    """Uploads share the page's library: what one adds, the other shows."""

    def __init__(self, services: Services) -> None:
        self._services, self._library = services, services.library

    @answered
    async def add(self, request: Request) -> Response:
        size = request.headers.get("content-length", "")
        if size.isdigit() and int(size) > MAX_UPLOAD_BYTES + _FORM_ROOM:
            raise _too_large()
        limited = Request(request.scope, _at_most(request.receive, MAX_UPLOAD_BYTES + _FORM_ROOM))
        try:
            async with limited.form(max_files=1, max_fields=8) as form:
                file = form.get("file")
                if not isinstance(file, UploadFile):
                    raise Problem(400, "no_file", "The form has no file", param="file")
                parts = iter(partial(file.file.read, 1 << 20), b"")
                entry = await asyncio.to_thread(self._keep, parts, Path(file.filename or "document").name,
                                                str(form.get("encoding") or ""))
        except HTTPException as error:
            raise Problem(400, "invalid_form", error.detail, remedy="Send the file as multipart/form-data, and name it "
                          "with at most 255 bytes.") from None
        return JSONResponse(self._described(entry))

    @answered
    async def all(self, request: Request) -> Response:
        found = [self._described(entry) for entry in self._library.entries() if not entry.parts]
        edges = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {}
        return JSONResponse({"object": "list", "data": found, "has_more": False} | edges)

    @answered
    async def one(self, request: Request) -> Response:
        return JSONResponse(self._described(self.find(request.path_params["file"])))

    @answered
    async def delete(self, request: Request) -> Response:
        entry = self.find(request.path_params["file"])
        await asyncio.to_thread(self._erase, entry.id)
        return JSONResponse({"id": file_name(entry), "object": "file", "deleted": True})

    def _described(self, entry: Entry) -> dict[str, Any]:
        return describe(entry, self._services.extractor.extractions.get(entry.id))

    def _erase(self, document: str) -> None:
        """Delete for good: a program asks for no Undo."""
        self._services.delete(TabView(), document)
        self._services.trash.empty(of=document)

    def find(self, name: str) -> Entry:
        """Return the entry of that name. Raises Problem."""
        entry = self._library.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
        if entry is None:
            raise Problem(404, "file_not_found", f"There is no file {name!r}", param="file_id",
                          remedy="GET /v1/files lists what there is.")
        return entry

    async def read(self, file: FileRef) -> tuple[Entry, Document]:
        """Return the document's text, once it is taken out. Raises Problem, in the reader's own words."""
        if file.id:
            entry = self.find(file.id)
        else:
            entry = await asyncio.to_thread(self._keep, [file.data], Path(file.name).name)
        encoding = file.encoding
        while True:
            document = self._library.document(entry.id) if entry.state == "ready" else None
            if document is not None:
                return entry, document
            if entry.state == "locked":
                raise Problem(400, "encrypted_document", f"{entry.name} needs its password", param="messages",
                              remedy="Open it once in the page.")
            if entry.state == "failed" and not encoding:
                raise Problem(400, "unreadable_document", entry.error, param="messages")
            begins = entry.state in ("new", "failed")
            await asyncio.to_thread(self._services.extractor.extract, entry.id, encoding=encoding if begins else "")
            encoding = "" if begins else encoding
            await asyncio.sleep(_LOOK_EVERY)
            entry = self.find(file_name(entry))  # it may have been deleted meanwhile

    def _keep(self, parts: Iterable[bytes], name: str, encoding: str = "") -> Entry:
        """Write into the private uploads folder, then into the library, which has its own copy."""
        path = self._services.folders.uploads / uuid.uuid4().hex
        try:
            with plainly(path), open(path, "xb", opener=_private) as target:
                for part in parts:
                    target.write(part)
            entry = self._library.add(path, name)
        finally:
            path.unlink(missing_ok=True)
        if entry.state == "new" or encoding:
            self._services.extractor.extract(entry.id, encoding=encoding)
        return entry


def file_name(entry: Entry) -> str:
    """Return an entry's id under OpenAI's names."""
    return _PREFIX + entry.id


def describe(entry: Entry, extraction: Extraction | None) -> dict[str, Any]:
    """Return an entry as OpenAI's interface has it. extraction: what its text waits for."""
    details = entry.error if entry.state == "failed" else entry.state if entry.state == "locked" else None
    if extraction is not None:
        details = text_line(extraction)
    return {"id": file_name(entry), "object": "file", "bytes": entry.bytes, "created_at": int(entry.added_at),
            "filename": entry.name, "purpose": "user_data", "status": _STATUS.get(entry.state, "uploaded"),
            "status_details": details, "pages": entry.pages or None}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _too_large() -> Problem:
    return Problem(413, "file_too_large", f"The file is larger than {MAX_UPLOAD_BYTES >> 20} MB",
                   have=MAX_UPLOAD_BYTES, remedy="Split it, or send only the pages that matter.")


def _at_most(receive: Any, most: int) -> Any:
    """Return the same stream, but it ends in a Problem once it brings more bytes than announced limits allow."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > most:
            raise _too_large()
        return message

    return counted
