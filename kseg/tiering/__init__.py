"""Segments in a tier: an object store behind the local log, in the layouts that Kafka's plugins write."""
