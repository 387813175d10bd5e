"""Apache Kafka itself, as something to compare with: its jars, its storage classes, a running broker."""
