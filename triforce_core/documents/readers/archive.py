"""Read zip and XML of DOCX and EPUB guardedly: sizes are checked before unpacking and while unpacking."""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Callable
from functools import lru_cache
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from ...errors import DamagedDocumentError, DocumentTooLargeError, EncryptedDocumentError
from .encodings import codec_of, declared_in, decode_text
from .source import Source

_SMALL = 1 << 20  # below this, a high ratio is harmless
_BLOCK = 3  # depth of a paragraph in <document><body>
_ENTRY_BYTES = 1024  # that one part may take in the directory: its name, and what else is said of it


def damaged(source: Source, why: str) -> DamagedDocumentError:
    return DamagedDocumentError(
        f"{source.name} is damaged: {why}", remedy="Get the file again, or save it anew in the program that made it."
    )


class _Directory(io.BufferedReader):
    """A zip file whose directory may only be so long. ``ZipFile`` reads it in one piece, and makes an object of every
    part, before anybody can count them."""

    most: int | None = None  # bytes of one read; None: any

    def read(self, size: int | None = -1, /) -> bytes:
        if self.most is not None and size is not None and size > self.most:
            raise _DirectoryTooLongError(size)
        return super().read(size)


class _DirectoryTooLongError(Exception):
    """Carries how many bytes the directory says that it has."""


def open_zip(source: Source, data: bytes | None = None) -> zipfile.ZipFile:
    """Open the file, or ``data`` of an archive inside the archive.

    Raises DocumentTooLargeError for more parts than any document has, and what ``ZipFile`` raises."""
    file = _Directory(io.FileIO(source.path) if data is None else io.BytesIO(data))  # type: ignore[arg-type]
    file.most = source.limits.zip_entries * _ENTRY_BYTES
    try:
        archive = zipfile.ZipFile(file)
    except _DirectoryTooLongError as problem:
        raise DocumentTooLargeError(
            f"{source.name} is a zip file with a directory of {int(problem.args[0]) / 1e6:,.0f} MB (a zip bomb?)",
            allowed=f"up to {file.most / 1e6:,.0f} MB", remedy="Do not trust this file.",
        ) from problem
    file.most = None
    return archive


class GuardedZip:
    """A zip file within the limits of ``source``; every violation is an error of its own."""

    def __init__(self, source: Source, data: bytes | None = None) -> None:
        """data: of an archive inside the archive."""
        self._source = source
        try:
            self._zip = open_zip(source, data)
            entries = self._zip.infolist()
        except (zipfile.BadZipFile, zipfile.LargeZipFile, OSError, ValueError, NotImplementedError) as problem:
            raise damaged(source, "its zip directory cannot be read (a cut-off download?)") from problem
        limits = source.limits
        if len(entries) > limits.zip_entries:
            raise self._bomb(f"{len(entries):,} parts", f"up to {limits.zip_entries:,}")
        if sum(entry.file_size for entry in entries) > limits.zip_bytes:
            raise self._bomb("too much data when unpacked", f"up to {limits.zip_bytes >> 20:,} MB")
        for entry in entries:
            parts = entry.filename.replace("\\", "/").split("/")
            if parts[0] == "" or ".." in parts or ":" in parts[0] or "\0" in entry.filename:
                raise DamagedDocumentError(
                    f"{source.name} holds a part with the forbidden name {entry.filename[:80]!r}",
                    remedy="Do not trust this file.",
                )
            if entry.file_size > _SMALL and entry.file_size > limits.zip_ratio * max(entry.compress_size, 1):
                raise self._bomb("a part packed suspiciously small", f"a ratio of up to {limits.zip_ratio}")
        self.names = frozenset(entry.filename for entry in entries)

    def read(self, name: str) -> bytes:
        """Return one part. The directory's sizes may lie, so unpacking stops at the limit too."""
        source = self._source
        try:
            entry = self._zip.getinfo(name)
            if entry.flag_bits & 1:
                raise EncryptedDocumentError(f"{source.name} is encrypted", remedy="Save it without a password.")
            with self._zip.open(entry) as stream:
                data = stream.read(entry.file_size + 1)
        except KeyError as problem:
            raise damaged(source, f"its part {name} is missing") from problem
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as problem:
            raise damaged(source, f"its part {name} cannot be unpacked") from problem
        if len(data) > entry.file_size:
            raise self._bomb("a part larger than it says", "honest sizes")
        return data

    def xml(self, name: str, problems: list[DamagedDocumentError] | None = None) -> Element:
        """Return the root element of a part, as ``parse_xml`` does."""
        return parse_xml(self.read(name), self._source, problems)

    def xml_if_any(self, name: str) -> Element:
        """Return the root element of a part, or an empty element if the file has no such part."""
        return self.xml(name) if name in self.names else Element("")

    def _bomb(self, what: str, allowed: str) -> DocumentTooLargeError:
        return DocumentTooLargeError(
            f"{self._source.name} holds {what} (a zip bomb?)", allowed=allowed, remedy="Do not trust this file."
        )


def parse_xml(data: bytes, source: Source, problems: list[DamagedDocumentError] | None = None,
              block: Callable[[Element], None] | None = None) -> Element:
    """Return the root element; elements and attributes are named without their namespaces.

    Document types are refused, so there are no entities, and depth is limited. block: called with each grandchild of
    the root, which is then emptied, so that no long document is held as a tree. Raises DamagedDocumentError for
    malformed XML, or adds the error to ``problems`` and returns what could be read."""
    label = declared_in(data)
    label = "" if label.lower() == "utf-8" or not codec_of(label) else label
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    builder, root, depth = TreeBuilder(), Element(""), 0

    def forbid(*_: object) -> None:
        raise DamagedDocumentError(
            f"{source.name} declares a document type in its XML, which no normal file does",
            remedy="Do not trust this file; save it anew in the program that made it.",
        )

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal root, depth
        depth += 1
        if depth > source.limits.xml_depth:
            raise DocumentTooLargeError(f"{source.name} nests its XML deeper than {source.limits.xml_depth} levels")
        found = builder.start(_local(name), {_local(key): value for key, value in attributes.items()})
        root = found if depth == 1 else root

    def end(name: str) -> None:
        nonlocal depth
        ended = builder.end(_local(name))
        if depth == _BLOCK and block is not None:
            block(ended)
            ended.clear()
        depth -= 1

    parser.StartDoctypeDeclHandler = forbid
    parser.EntityDeclHandler = forbid
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    try:
        try:
            # Expat knows few encodings itself, and none of several bytes; of text it asks no encoding.
            parser.Parse(decode_text(data, source.name, label)[0] if label else data, True)
        except (expat.ExpatError, LookupError) as problem:  # LookupError: an encoding that nobody knows
            raise damaged(source, "its XML is malformed") from problem
    except DamagedDocumentError as problem:
        if problems is None:
            raise
        problems.append(problem)
    return root


@lru_cache(4096)
def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def resolve(folder: str, reference: str) -> str:
    """Return a part's name from a reference inside a part in ``folder``; "" when it leads outside."""
    path = posixpath.normpath(posixpath.join(folder, reference))
    return "" if path.startswith(("..", "/")) else path
