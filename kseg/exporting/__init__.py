"""Topics to Parquet, written from Arrow inside the tasks of a plan."""
