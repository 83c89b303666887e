"""The engine's verbs. ``worker.client`` has the same ones and yields the same events.

(The bodies live in the files that this one composes; see ``session`` and ``assembly``.)
"""
