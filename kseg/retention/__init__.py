"""Retention: old segments go by time, by size and by log start, as a broker's own retention would have them go."""
