"""Video: decoding into shared memory, and films made of drawn frames."""
