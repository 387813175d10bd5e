"""Bytes to batches to records, and back; no files, no threads."""
