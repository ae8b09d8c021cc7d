"""Models as files: what they are, converting them for NPUs, and keeping what was converted."""
