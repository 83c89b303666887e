"""The OpenAI-compatible API on the page's port: the same documents, the same engine, the same queue.

Conventions where OpenAI's leave room: a document is a file part of a user message, ``{"type": "file", "file":
{"file_id": "file-..."}}`` (or ``file_data``), with ``"pages": "3-9"`` beside it for some of its pages; without a file
the system message *is* the document. Answers carry ``timings`` under llama.cpp's names. Knows no Gradio.
"""
