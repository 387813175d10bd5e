"""`--spark MASTER`: run a job's tasks on Spark instead of in this process."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from kseg.errors import OptionError


def add_spark(parser: argparse.ArgumentParser) -> None:
    """Declare --spark."""
    parser.add_argument("--spark", metavar="MASTER", help="run on Spark: local[2], spark://host:7077, yarn, ...")


@contextlib.contextmanager
def spark_session(args: argparse.Namespace) -> Iterator[Any]:
    """The session that --spark asks for; None without it."""
    if args.spark is None:
        yield None
        return
    try:
        from kseg.datasource.session import open_session
    except ImportError as error:
        raise OptionError(f"--spark needs pyspark: {error}", hint="pip install 'kseg[spark]'") from None
    with open_session(args.spark) as session:
        yield session
