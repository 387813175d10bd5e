"""Spark's side of kseg: the only package that imports pyspark."""
