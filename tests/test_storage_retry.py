"""Calls to stores that are tried again: what is worth it, how often, and what is said at the end."""

from __future__ import annotations

import errno
import pickle
import uuid

import fsspec
import pytest

import kseg
from kseg.errors import StorageError
from kseg.os_errors import storage_error
from kseg.storage import LocalStore, open_store
from kseg.storage_arrow import arrow_errors
from kseg.storage_retry import RetryingStore, RetryPolicy
from tests.faults.store import at, busy, down_from, every, failing

QUICK = RetryPolicy(first_pause_s=0.0)


def test_calls_are_tried_again_with_longer_pauses():
    pauses = []
    failures = iter([busy("x"), busy("x"), busy("x"), None])

    def call():
        error = next(failures)
        if error is not None:
            raise error
        return 7

    assert RetryPolicy(first_pause_s=1.0, sleep=pauses.append).run(call) == 7
    assert 0.5 <= pauses[0] <= 1.0 <= pauses[1] <= 2.0 <= pauses[2] <= 4.0


def test_the_end_is_told_once_and_not_tried_again():
    def inner():
        return RetryPolicy(3, first_pause_s=0.0).run(lambda: _raise(busy("x")))

    with pytest.raises(StorageError, match=r"^x: the server said 503 \(tried 3 times in 0 s\)$"):
        QUICK.run(inner)


def test_no_try_begins_after_the_time_is_up():
    calls = []

    def call():
        calls.append(1)
        raise busy("x")

    with pytest.raises(StorageError):
        RetryPolicy(first_pause_s=0.0, give_up_after_s=0.0).run(call)
    assert len(calls) == 1


def _raise(error):
    raise error


class _Answer(Exception):
    def __init__(self, status):
        super().__init__(f"answer {status}")
        self.status = status


@pytest.mark.parametrize(
    ("error", "is_worth_it"),
    [
        (OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 7"), True),
        (OSError("AWS Error SLOW_DOWN during PutObject operation"), True),
        (OSError("AWS Error UNKNOWN (HTTP status 507) during PutObject operation"), True),
        (OSError("AWS Error UNKNOWN (HTTP status 429) during PutObject operation"), True),
        (OSError("AWS Error UNKNOWN (HTTP status 400) during HeadObject operation"), False),
        (OSError("AWS Error UNKNOWN (HTTP status 301) during HeadObject operation"), False),
        (OSError("AWS Error ACCESS_DENIED during HeadObject operation"), False),
        (OSError("AWS Error SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation"), False),
        (OSError("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation"), False),
        (OSError("google::cloud::Status(PERMISSION_DENIED: no)"), False),
        (OSError("google::cloud::Status(UNAVAILABLE: no)"), True),
        (FileNotFoundError("x"), False),
        (PermissionError("x"), False),
        (ConnectionResetError("x"), True),
        (TimeoutError("x"), True),
        (_Answer(503), True),
        (_Answer(403), False),
        (_Answer(404), False),
        (_Answer(429), True),
        (NotImplementedError("x"), False),
    ],
)
def test_what_another_try_cannot_help_is_told_at_once(error, is_worth_it):
    with pytest.raises(StorageError) as caught, arrow_errors("x"):
        raise error
    assert caught.value.retryable is is_worth_it
    assert isinstance(caught.value, kseg.KsegError)


@pytest.mark.parametrize(
    ("code", "is_worth_it"),
    [(errno.EIO, True), (errno.ESTALE, True), (errno.ENOSPC, False), (errno.EACCES, False), (errno.ENOENT, False)],
)
def test_which_errors_of_a_disk_are_worth_another_try(code, is_worth_it):
    assert storage_error(OSError(code, "x"), "x").retryable is is_worth_it


def test_a_signed_address_in_an_error_is_not_shown():
    with pytest.raises(StorageError) as caught, arrow_errors("x"):
        raise _Answer("https://account/x?sv=1&sig=hidden%3D&se=2")
    assert "hidden" not in str(caught.value)
    assert "se=2" in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    """A store with a file `x` in it, and its root."""
    if request.param == "local":
        (tmp_path / "x").write_bytes(b"0123456789")
        return RetryingStore(LocalStore(), QUICK), str(tmp_path)
    root = f"memory:///{uuid.uuid4().hex}"
    fsspec.filesystem("memory").pipe(f"{root}/x", b"0123456789")
    found, path = open_store(root)
    assert isinstance(found, RetryingStore)
    return RetryingStore(found, QUICK), path


def _use(store, root):
    path = store.join(root, "x")
    assert [entry.name for entry in store.list(root)] == ["x"]
    assert store.stat(path).size == 10
    assert store.read(path, 3) == b"012"
    with store.open(path) as file:
        view = bytearray(4)
        assert file.read_into(3, view) == 4
        assert view == b"3456"
        assert file.refresh() == 10
        assert file.read_into(8, view) == 2
    return True


def test_every_call_is_tried_again(store):
    with failing(every(3), store[1]) as faults:
        assert _use(*store)
    assert faults.failed >= 3


def test_every_call_fails_in_the_end(store):
    with failing(every(100), store[1]) as faults:
        _use(*store)
    for number in range(1, faults.count + 1):
        with (
            failing(down_from(number), store[1]),
            pytest.raises(StorageError, match=r"the server said 503 \(tried 5 times"),
        ):
            _use(*store)
        with failing(at(number, "denied"), store[1]), pytest.raises(StorageError, match=r"ACCESS_DENIED$"):
            _use(*store)


def test_a_file_that_is_replaced_between_two_tries_is_not_mixed(tmp_path):
    (tmp_path / "x").write_bytes(b"0123456789")
    (tmp_path / "y").write_bytes(b"9876543210")
    store = RetryingStore(LocalStore(), QUICK)
    with store.open(str(tmp_path / "x")) as file:
        (tmp_path / "y").replace(tmp_path / "x")
        with failing(at(1, "once"), str(tmp_path)), pytest.raises(StorageError, match="replaced while it was read"):
            file.read_into(0, bytearray(4))


def test_a_store_that_retries_is_pickled(store):
    found = pickle.loads(pickle.dumps(store[0]))
    if isinstance(found.raw, LocalStore):
        assert _use(found, store[1])
    assert found.retry == store[0].retry
