"""One reader per format. They run in the reader process only, and know nothing of processes, tokens or prompts."""
