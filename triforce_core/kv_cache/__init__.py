"""Keys and values: one contract (``base``), one file for each kind, and readings on disk (``snapshot``)."""
