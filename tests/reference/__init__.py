"""Slow, obvious twins of what kseg does fast: plain Python, one step after the other, for comparison in tests."""
