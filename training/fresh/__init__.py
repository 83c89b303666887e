"""Questions about documents that nothing is trained or tuned on."""
