"""Runs llama.cpp's server: `python -m tests.peer.serve MODEL [PARALLEL]`. Prints its address, ends with its stdin."""

from __future__ import annotations

import sys

import xllamacpp


def main(model: str, parallel: str = "1") -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_parallel = int(parallel)
    parameters.n_ctx = 4096 * int(parallel)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    # One thread: two on a busy machine of two cores wait for each other.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.endpoint_metrics = True
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
