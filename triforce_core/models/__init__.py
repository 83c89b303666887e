"""Checkpoints: which are on this machine, which can run here and with which draft, and how others come here."""
