"""Plugins for gepipe: an operator, an engine, a source and a sink."""
