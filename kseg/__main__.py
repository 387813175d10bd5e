"""The program `kseg`, and `python -m kseg`: the command line as a process that Ctrl-C may reach at any moment."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType
from typing import Final, NoReturn

INTERRUPTED: Final = 130
AGAIN_SECONDS: Final = 0.01


def run() -> NoReturn:
    """Run the call that this process was started for, and leave with its exit status."""
    atexit.register(_keep_quiet)  # first, and so the last that is called
    interrupt = Interrupt()
    try:
        interrupt.listen()
        from kseg.cli.main import main

        status = main()
    except KeyboardInterrupt:  # while it was loaded, or a second one
        status = _tell()
    except Exception:
        if not interrupt.came:
            raise
        status = _tell()  # what is half loaded may make another error of an interrupt
    interrupt.leave_with(status)
    exec("")  # else CPython ends `-m kseg` by the signal if it came in any `exec` of a text, though it was caught
    sys.exit(status)


class Interrupt:
    """Ctrl-C: a KeyboardInterrupt in the main thread, and again where Python dropped it."""

    def __init__(self) -> None:
        self.came = False
        self._is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else a shell's background

    def listen(self) -> None:
        """Be ready for it."""
        if self._is_heard:
            signal.signal(signal.SIGINT, self._stop)
            signal.signal(signal.SIGALRM, self._stop)
            sys.unraisablehook = self._look_at_dropped

    def leave_with(self, status: int) -> None:
        """All is done: whoever does not want to wait for threads and temporary files need not."""
        if self._is_heard:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, lambda *_: os._exit(status))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        raise KeyboardInterrupt

    def _look_at_dropped(self, dropped: sys.UnraisableHookArgs) -> None:
        """Errors in callbacks of C and of weak references go nowhere: an interrupt has to come a second time."""
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
            sys.__unraisablehook__(dropped)


def _tell() -> int:
    if sys.stderr:
        sys.stderr.write("kseg: interrupted\n")
    return INTERRUPTED


def _keep_quiet() -> None:
    """Python gives its handlers up before it is gone: the signal would end a call that is over."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    run()
