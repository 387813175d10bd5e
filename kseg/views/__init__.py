"""Tables about a log directory, as Arrow: batches, segments, committed offsets, groups, transactions, topics."""
