"""Which client a URI reaches, and with which path. No cloud is called: clients are made, and asked nothing."""

from __future__ import annotations

import socket
import sys

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs as pafs

import kseg
from kseg.errors import OptionError, StorageError
from kseg.storage import open_store
from kseg.storage_arrow import CONNECT_S, SILENCE_S
from kseg.tiering.objects import open_tier
from kseg.tiering.tier import Tier


def opened(uri):
    store, path = open_store(uri)
    return store.raw.filesystem, path


@pytest.mark.parametrize(
    ("uri", "kind", "path"),
    [
        ("gs://bucket/some/prefix", "gcs", "bucket/some/prefix"),
        ("gcs://bucket/some/prefix", "gcs", "bucket/some/prefix"),
        ("GS://bucket/x", "gcs", "bucket/x"),
        ("gs://bucket", "gcs", "bucket"),
        ("gs://bucket/x?scheme=http&endpoint_override=127.0.0.1:1", "gcs", "bucket/x"),
        ("abfs://container@account.dfs.core.windows.net/some/prefix", "abfs", "container/some/prefix"),
        ("abfss://container@account.dfs.core.windows.net/some/prefix", "abfs", "container/some/prefix"),
        ("abfss://account.blob.core.windows.net/container/x", "abfs", "container/x"),
        ("s3://bucket/some/prefix?region=eu-west-1", "s3", "bucket/some/prefix"),
        ("s3a://bucket/some/prefix?region=eu-west-1", "s3", "bucket/some/prefix"),
    ],
)
def test_pyarrows_own_stores(uri, kind, path):
    filesystem, found = opened(uri)
    assert (filesystem.type_name, found) == (kind, path)
    assert Tier(uri).root == path
    assert open_tier(uri).path("t-x/0/a.log") == f"{path}/t-x/0/a.log"


def test_google_is_not_waited_for_a_quarter_of_an_hour():
    options = opened("gs://bucket/x")[0].__reduce__()[1][0]
    assert options["retry_time_limit"].total_seconds() == SILENCE_S
    given = opened("gs://bucket/x?retry_limit_seconds=77")[0].__reduce__()[1][0]
    assert given["retry_time_limit"].total_seconds() == 77


def test_s3_is_not_waited_for_longer_than_that():
    options = opened("s3://bucket/x?region=eu-west-1&endpoint_override=127.0.0.1:1")[0].__reduce__()[1][0]
    assert (options["connect_timeout"], options["request_timeout"]) == (CONNECT_S, SILENCE_S)
    assert (options["region"], options["endpoint_override"]) == ("eu-west-1", "127.0.0.1:1")


class _Cloud(MemoryFileSystem):
    """Stands for a client of fsspec's: keeps what it is given by its URI."""

    protocol = ("az", "oss")
    store: dict = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.partition("://")[2] if "://" in path else path


@pytest.mark.parametrize("scheme", ["az", "oss"])
def test_other_stores_go_through_fsspec(scheme, monkeypatch):
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, scheme, _Cloud)
    store, path = open_store(f"{scheme}://container/some/prefix")
    assert isinstance(store.raw.filesystem, pafs.PyFileSystem)
    assert path == "/container/some/prefix"
    tier = open_tier(f"{scheme}://container/some/prefix")
    tier.put_bytes("t-x/0/a.log", b"123")
    assert tier.read("t-x/0/a.log") == b"123"
    assert bytes(_Cloud.store["/container/some/prefix/t-x/0/a.log"].getvalue()) == b"123"
    assert [found.key for found in tier.list()] == ["t-x/0/a.log"]
    _Cloud.store.clear()


def test_what_is_missing_says_what_to_install(monkeypatch):
    with pytest.raises(OptionError, match=r"az:// needs a package: .*; pip install adlfs$"):
        open_store("az://container/x")
    with pytest.raises(OptionError, match="names no storage account; write abfss://container@account"):
        open_store("abfs://container/x")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(OptionError, match=r"pyarrow does not know az://; pip install fsspec adlfs$"):
        open_store("az://container/x")
    with pytest.raises(OptionError, match=r"pyarrow does not know nonsense://; pip install fsspec$"):
        open_store("nonsense://container/x")


def test_a_store_that_nobody_knows():
    with pytest.raises(OptionError, match="nonsense"):
        open_store("nonsense://container/x")


def test_what_an_fsspec_store_does_not_have_is_said_plainly():
    with pytest.raises(StorageError, match=r"^/nowhere/orders-0: no such file or directory$"):
        kseg.open_log("memory://nowhere/orders-0")


def test_a_server_that_cannot_be_reached_is_named(monkeypatch):
    """fsspec's client for ftp connects when it is made; the command line took its OSError for one of its own output."""

    class _Ftp(MemoryFileSystem):
        cachable = False

        def __init__(self, **_):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "nowhere", _Ftp)
    with pytest.raises(StorageError, match="nowhere://host/data: Name or service not known"):
        kseg.open_log("nowhere://host/data")


@pytest.mark.parametrize("uri", ["reference://some/data", "hdfs://name.invalid/data"])
def test_a_client_that_cannot_be_made_is_told_in_one_short_line(uri, monkeypatch):
    """pyarrow listed every place where it had looked for Java's library, and fsspec's TypeError came through."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises((OptionError, StorageError), match=uri) as caught:
        kseg.open_log(uri)
    assert len(str(caught.value)) < 400
