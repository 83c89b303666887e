"""What a person can do, without a page: library, conversations, questions, the one queue, settings. No HTML."""
