"""Joins standard input and output with a unix socket: qemu runs it for each connection of a machine to the gateway.

    relay.py SOCKET

Without a listener it ends at once, and so the connection does.
"""

import contextlib
import os
import socket
import sys
import threading


def _copy(source: int, sink: int) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(source, 1 << 16):
            view = memoryview(data)
            while view:
                view = view[os.write(sink, view) :]


def main() -> None:
    peer = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):
        peer.connect(sys.argv[1])
        threading.Thread(target=_copy, args=(0, peer.fileno()), daemon=True).start()
        _copy(peer.fileno(), 1)


main()
