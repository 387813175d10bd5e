"""A proxy on loopback that makes a server slow, or lets connections break; it does not look at what passes through."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Self

_PIECE = 16 << 10


class Proxy:
    """Passes connections on to `target`, a `host:port`.

    Args:
        delay_s: Before each piece of bytes, in either direction.
        bytes_per_second: In each direction of each connection.
        drop_every: One connection in so many is closed in the middle of its answer.
    """

    def __init__(
        self, target: str, *, delay_s: float = 0.0, bytes_per_second: float | None = None, drop_every: int = 0
    ) -> None:
        self._target = target
        self._delay_s = delay_s
        self._rate = bytes_per_second
        self._drop_every = drop_every
        self.dropped = 0
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            is_dropped = self._drop_every > 0 and self.connections % self._drop_every == 0
            threading.Thread(target=self._serve, args=(client, is_dropped), daemon=True).start()

    def _serve(self, client: socket.socket, is_dropped: bool) -> None:
        host, port = self._target.split(":")
        try:
            server = socket.create_connection((host, int(port)))
        except OSError:
            client.close()
            return
        back = threading.Thread(target=self._pump, args=(server, client, is_dropped), daemon=True)
        back.start()
        self._pump(client, server, False)
        back.join()
        client.close()
        server.close()

    def _pump(self, source: socket.socket, target: socket.socket, is_dropped: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                time.sleep(self._delay_s + (len(piece) / self._rate if self._rate else 0.0))
                if is_dropped:
                    self.dropped += 1
                    target.sendall(piece[: len(piece) // 2] if len(piece) > 2000 else b"")
                    break
                target.sendall(piece)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR if is_dropped else socket.SHUT_WR if end is target else socket.SHUT_RD)
