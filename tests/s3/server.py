"""A real S3 server on loopback: versitygw, built once with Go into the cache folder of `tests.kafka.jars`.

`python -m tests.s3.server` builds it. Objects are files below `folder`, which tests may look at, and damage.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from tests.kafka.broker import _free_ports
from tests.kafka.jars import Missing, cache_dir, published

VERSION = "1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
BUILD_SECONDS = 900
START_SECONDS = 30.0
ACCESS_KEY, SECRET_KEY = "kseg", "kseg-test-only"
S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
}


class ServerError(Exception):
    """The server failed; the message ends in what it printed."""


def program() -> Path:
    """Return the server's program, built where it is not yet."""
    target = cache_dir().parent / f"versitygw-{VERSION}"
    if not target.exists():
        go = shutil.which("go")
        if go is None:
            raise Missing("no go on the PATH: install Go, which builds the S3 server")
        with published(target) as folder:
            if folder is not None:
                environment = {**os.environ, "GOBIN": str(folder)}
                answer = subprocess.run(
                    [go, "install", MODULE], env=environment, capture_output=True, timeout=BUILD_SECONDS, check=False
                )
                if answer.returncode != 0:
                    raise Missing(f"go could not build versitygw {VERSION}: {answer.stderr[-500:]!r}")
    return target / "versitygw"


class S3Server:
    """One server whose objects live below `folder`; it can be started, stopped and killed many times."""

    def __init__(self, folder: Path) -> None:
        self._program = program()
        self.folder = folder / "objects"
        self.folder.mkdir()
        self.log_file = folder / "server.log"
        self.address = f"127.0.0.1:{_free_ports(1)[0]}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until it answers."""
        environment = {**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        command = [str(self._program), "--port", self.address, "--quiet", "posix", str(self.folder)]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"the S3 server did not start: {self.log_file.read_text()[-2000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        host, port = self.address.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            urllib.request.urlopen(f"http://{self.address}/", timeout=1).close()
        except urllib.error.HTTPError:  # it wants a signature: it is there
            return True
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End it, and wait; nothing to do where it does not run."""
        if self._process is not None:
            self.thaw()
            self._process.terminate()
            self._process.wait(timeout=START_SECONDS)
            self._process = None

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let it say nothing any more, as a server that hangs; `thaw` lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def limit_files(self, size: int | None) -> None:
        """Let its disk be full for files of more bytes than this; None: it has room again."""
        assert self._process is not None
        limit = resource.RLIM_INFINITY if size is None else size
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def bucket(self, name: str) -> str:
        """Make a bucket; return its URI. Credentials come from the environment."""
        (self.folder / name).mkdir()
        return self.uri(name)

    def uri(self, path: str, address: str | None = None) -> str:
        """The URI of a bucket, or of a prefix in one; `address` is that of a proxy, where there is one."""
        return f"s3://{path}?endpoint_override={address or self.address}&scheme=http&region=us-east-1"


def main() -> int:
    """Build the server; say in one line why not."""
    try:
        program()
    except Missing as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
