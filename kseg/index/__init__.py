"""Sidecar files of segments and partitions: indexes, producer snapshots, checkpoints."""
