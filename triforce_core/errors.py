"""Every error that a person can cause or must act on, and nothing else (broken invariants are ``assert``).

    TriForceError                    message: what was given; allowed: what is; remedy: what to do
    ├── ConfigError                  a setting or flag out of range
    ├── DocumentError                a file that cannot be read as asked
    │   ├── UnknownFormatError       neither PDF, TXT, Markdown, HTML, DOCX nor EPUB
    │   ├── UnclearEncodingError     text in one of several encodings: readings to choose from
    │   ├── EncryptedDocumentError   needs a password
    │   ├── DamagedDocumentError     truncated or malformed
    │   ├── EmptyDocumentError       no pages or no characters
    │   ├── ScannedDocumentError     pages are pictures: no text layer
    │   ├── DocumentTooLargeError    over the limits of size, pages, memory or time (bombs end here)
    │   └── PageRangeError           pages asked for that the document has not
    ├── ContextTooLongError          document + question + answer exceed the model's context
    ├── ModelError                   a checkpoint that cannot be used
    │   ├── ModelNotFoundError
    │   ├── UnsupportedModelError    an architecture or rope kind that the decoder does not implement
    │   ├── DamagedWeightsError      missing, extra or misshapen tensors; unsafe pickles
    │   └── TokenizerMismatchError   target and draft have no token in common, or files of one do not agree
    ├── NotEnoughMemoryError         need / have / what to change
    ├── NotEnoughDiskError
    ├── EngineDiedError              the engine process ended; the partial answer is kept
    ├── EngineBusyError
    ├── EvidenceDiedError            the evidence process ended; the answer stands unchecked
    ├── NotSpelledError              a page's text and the model's tokens of it differ: no passage of it is spelled
    └── RemoteServerError            a server elsewhere refused, failed or did not answer
"""

from __future__ import annotations

from collections.abc import Sequence


class TriForceError(Exception):
    """A problem that a person can mend. ``str(error)`` is one line that is fit to show.

    message: what was given and what is wrong with it; allowed: what would be accepted;
    remedy: what to do next. Empty parts are left out. Picklable: errors cross processes.
    """

    def __init__(self, message: str, *, allowed: str = "", remedy: str = "") -> None:
        super().__init__(message, allowed, remedy)
        self.message, self.allowed, self.remedy = message, allowed, remedy

    def __str__(self) -> str:
        parts = (self.message, self.allowed and f"Allowed: {self.allowed}", self.remedy)
        return " ".join(part if part[-1] in ".!?:" else part + "." for part in parts if part)

    def __reduce__(self):
        return _rebuild, (type(self), self.message, self.allowed, self.remedy)


def _rebuild(kind: type[TriForceError], message: str, allowed: str, remedy: str) -> TriForceError:
    return kind(message, allowed=allowed, remedy=remedy)


class ConfigError(TriForceError): ...


class DocumentError(TriForceError): ...


class UnknownFormatError(DocumentError): ...


class UnclearEncodingError(DocumentError):
    """Carries readings of a text whose encoding is not clear: (codec, its name for people, a line of the text)."""

    def __init__(self, message: str, *, allowed: str = "", remedy: str = "",
                 readings: Sequence[Sequence[str]] = ()) -> None:
        super().__init__(message, allowed=allowed, remedy=remedy)
        self.readings = readings


class EncryptedDocumentError(DocumentError): ...


class DamagedDocumentError(DocumentError): ...


class EmptyDocumentError(DocumentError): ...


class ScannedDocumentError(DocumentError): ...


class DocumentTooLargeError(DocumentError): ...


class PageRangeError(DocumentError): ...


class ContextTooLongError(TriForceError): ...


class ModelError(TriForceError): ...


class ModelNotFoundError(ModelError): ...


class UnsupportedModelError(ModelError): ...


class DamagedWeightsError(ModelError): ...


class TokenizerMismatchError(ModelError): ...


class NotEnoughMemoryError(TriForceError): ...


class NotEnoughDiskError(TriForceError): ...


class EngineDiedError(TriForceError): ...


class EngineBusyError(TriForceError): ...


class EvidenceDiedError(TriForceError): ...


class NotSpelledError(TriForceError): ...


class RemoteServerError(TriForceError): ...
