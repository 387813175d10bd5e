"""Segments to partitions to log directories."""
