"""What a broker does to a log when it starts, or follows a new leader: planned, shown, applied, undone."""
