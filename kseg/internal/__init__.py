"""Records of Kafka's internal topics: from bytes to plain values and back."""
