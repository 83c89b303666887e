"""The app without a page: library, conversations, questions, the one queue, settings. No HTML."""
