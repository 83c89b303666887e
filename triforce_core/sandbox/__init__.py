"""Processes with limits, for what may be hostile: files that are read, templates that are filled in."""
