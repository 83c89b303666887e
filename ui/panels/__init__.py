"""Panels whose components and events are not yet in one file of ``ui.page`` with their HTML and words."""
