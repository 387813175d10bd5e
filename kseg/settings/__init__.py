"""Which settings hold for a topic, by Kafka's own rules: known, or refused."""
