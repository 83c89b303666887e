"""What is said to whoever may not come in, or not like this."""

from __future__ import annotations

HOST_UNKNOWN = "There is no address {host}"
HOST_REMEDY = "Give --host an address of this machine, or leave it at 127.0.0.1."
LOGIN_WRONG = "Incorrect credentials."
JSON_BAD = "The body is not JSON in UTF-8, or has more than {deepest} brackets in each other."
FORM_BAD = "The form is in another encoding than UTF-8."
JSON_LARGE = "The request is larger than {most} MB. Upload the document with /v1/files."
ORIGIN_BAD = "--allow-origin is {origin!r}"
ORIGINS_ALLOWED = "scheme, host and port as a browser's address bar begins, such as http://localhost:5173"
