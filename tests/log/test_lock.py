"""The lock of a log directory."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from kseg.errors import LockedError, StorageError
from kseg.log.lock import DirLock

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""
TRY = """
import fcntl, sys
file = open(sys.argv[1], "a+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("held")
else:
    print("free")
"""


def _state(log_dir):
    command = [sys.executable, "-c", TRY, str(log_dir / ".lock")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_lock_is_seen_by_other_processes_and_ends(tmp_path):
    with DirLock(tmp_path) as lock:
        assert lock.is_held
        assert _state(tmp_path) == "held"
    assert not lock.is_held
    assert _state(tmp_path) == "free"
    assert (tmp_path / ".lock").exists()


def test_what_another_process_holds_is_refused_and_named(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline().strip() == "held"
        with pytest.raises(LockedError) as caught:
            DirLock(tmp_path).acquire()
        assert str(tmp_path / ".lock") in str(caught.value)
        if sys.platform == "linux":
            assert f"process {holder.pid}" in str(caught.value)
        holder.stdin.close()
    DirLock(tmp_path).acquire().release()


def test_a_process_shares_one_lock_until_the_last_is_released(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    first = DirLock(tmp_path).acquire()
    second = DirLock(tmp_path / "link").acquire()
    second.acquire()
    second.release()
    second.release()
    assert _state(tmp_path) == "held"
    third = DirLock(tmp_path).acquire()
    first.release()
    assert _state(tmp_path) == "held"
    third.release()
    assert _state(tmp_path) == "free"


def test_a_missing_directory_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError):
        DirLock(tmp_path / "none").acquire()


def test_a_forked_child_holds_nothing_and_takes_nothing_away(tmp_path):
    script = (
        "import os, sys\n"
        "from kseg.errors import LockedError\n"
        "from kseg.log.lock import DirLock\n"
        "lock = DirLock(sys.argv[1]).acquire()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    lock.release()\n"
        "    try:\n"
        "        DirLock(sys.argv[1]).acquire()\n"
        "    except LockedError:\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "sys.exit(0 if status == 7 and lock.is_held else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 0


def test_threads_share_the_lock(tmp_path):
    def work():
        for _ in range(20):
            with DirLock(tmp_path) as lock:
                assert lock.is_held

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _state(tmp_path) == "free"
