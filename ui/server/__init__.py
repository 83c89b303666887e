"""Routes, who may use them, and the life of the server. ``lifecycle`` starts and ends the app."""
