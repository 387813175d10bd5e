"""Comparisons with Kafka's own code and other libraries, as ratios within one run: `python -m benchmarks`."""
