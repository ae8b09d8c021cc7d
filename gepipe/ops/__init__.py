"""Operators for pre and post stages, and how a chain of them is run."""
