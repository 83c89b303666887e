"""The benchmark: plain decoding and TriForce from the same cached document, alternating, in one run."""
