"""The page, one file per panel: its words, its HTML, its components, when each is drawn, and its events."""
