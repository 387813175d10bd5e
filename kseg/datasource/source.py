"""`spark.read.format("kseg")`: the Python Data Source, with the options and columns of Spark's Kafka source.

    spark.read.format("kseg").option("subscribe", "orders").load("data")

Options are those of Spark's own Kafka source, with a path in place of the servers; kseg's own are columns,
corrupt, maxBytesPerTask, maxReadBytesPerSecond, readPastHighWatermark and view (docs/spark.md).
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from kseg.datasource.spark_schema import check_schema, check_view_schema, field_of, record_schema, view_schema
from kseg.datasource.table_options import own_options, recall_options, remember_options
from kseg.errors import OptionError
from kseg.options import SourceOptions, parse_source_options


class KsegDataSource(DataSource):
    """Partitions of Kafka logs as a DataFrame."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "kseg"

    def schema(self) -> StructType:
        """The columns of the view, or of records: the Kafka source's, or those that `columns` names."""
        options = self._parsed_for_any_read()
        if options.view != "records":
            found = view_schema(options)
            if options.columns is not None:
                found = StructType([field_of(found, name) for name in options.columns])
        else:
            found = record_schema(options)
        return remember_options(found, self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns in `schema`: a user's own may name any of them, in any order."""
        from kseg.datasource.reader import RecordReader, ViewReader

        options = parse_source_options(recall_options(schema, self.options))
        if options.view != "records":
            if options.corrupt != "fail":
                raise OptionError(f"option corrupt is {options.corrupt!r}, which is for records; views raise at damage")
            check_view_schema(schema, options)
            return ViewReader(options, schema)
        check_schema(schema, options)
        return RecordReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that follows the logs; views are for batch reads.

        What is wrong with the query is said by the reader: of an error here Spark makes another one of its own.
        """
        from kseg.datasource.stream import KsegStreamReader, RefusedStreamReader

        try:
            options = parse_source_options(recall_options(schema, self.options), streaming=True)
            if options.view != "records":
                raise OptionError(f"option view is {options.view!r}; a streaming query reads records only")
            check_schema(schema, options)
            return KsegStreamReader(options, schema)
        except OptionError as error:
            return RefusedStreamReader(error)

    def _parsed_for_any_read(self) -> SourceOptions:
        """Options where Spark does not say whether the read is a streaming one; the readers check them strictly."""
        options = own_options(self.options)
        try:
            return parse_source_options(options)
        except OptionError as error:
            try:
                return parse_source_options(options, streaming=True)
            except OptionError:
                raise error from None
