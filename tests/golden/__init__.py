"""Logs that real brokers wrote (README.md)."""
