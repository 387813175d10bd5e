"""Found by Spark by its name, `pyspark_*`: makes `format("kseg")` known without a register call.

Installed at the top level (see pyproject.toml), which is why it has a folder of its own. Import-light: Spark imports
every such module when it meets a format that it does not know.
"""

from kseg.datasource.source import KsegDataSource as DefaultSource

__all__ = ["DefaultSource"]
