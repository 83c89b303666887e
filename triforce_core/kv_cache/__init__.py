"""Keys and values: one contract (``base``), one file per kind."""
