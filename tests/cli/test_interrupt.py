"""Ctrl-C at bad moments: one line and status 130, or the status of a call that is over."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.builders import LogBuilder
from tests.cli.calls import start

STOPPED = (130, b"kseg: interrupted\n")
OVER = (0, b"")
MOMENTS = {
    "an exec of a text": ("exec('import signal; signal.raise_signal(signal.SIGINT)')", STOPPED),
    "a callback whose errors go nowhere": (
        "import signal, time, weakref\n"
        "class Thing: pass\n"
        "thing = Thing()\n"
        "callback = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))\n"
        "del thing\n"
        "time.sleep(60)",
        STOPPED,
    ),
    "code that makes another error of it": (
        "import signal\n"
        "try:\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt:\n"
        "    raise RuntimeError('half loaded')",
        STOPPED,
    ),
    "what is called at the end": ("import atexit, signal; atexit.register(signal.raise_signal, signal.SIGINT)", OVER),
    "the end of Python itself": (
        "import os, signal\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGINT):\n"
        "        kill(process, number)\n"
        "late = Late()",
        OVER,
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    "program", [["-m", "kseg"], ["-c", "from kseg.__main__ import run; run()"]], ids=["m", "script"]
)
def test_an_interrupt_in(tmp_path, monkeypatch, moment, program):
    text, expected = MOMENTS[moment]
    folder = LogBuilder(tmp_path).record(b"a", b"1").write()
    tmp_path.joinpath("moment.py").write_text(f"{text}\ndef chosen(batch):\n    return [False] * batch.num_rows\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    process = start([sys.executable, *program, "erase", str(folder), "--predicate", "moment:chosen", "--yes"])
    _, messages = process.communicate(timeout=60)
    assert (process.returncode, messages) == expected


def test_an_interrupt_that_a_shell_ignores_in_its_background_is_ignored(tmp_path):
    path = LogBuilder(tmp_path).record(b"a", b"1").write()
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, '-c', {_raising()!r}, 'ls', {str(path)!r}])\n"
    )
    process = start([sys.executable, "-c", code])
    out, messages = process.communicate(timeout=60)
    assert (process.returncode, messages) == OVER
    assert b"orders" in out


def _raising() -> str:
    return f"import os; from kseg.__main__ import run; os.kill(os.getpid(), {int(signal.SIGINT)}); run()"
