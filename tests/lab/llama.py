"""Takes the place of `sglang.launch_server`: llama.cpp's own server, with a model that is written and not trained.

It takes address, port and name from the rendered command line. It runs from a wheel (tests/servers.py) beside that of
xllamacpp. Whatever it answers, it proves nothing of sglang.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

from sglang import flags, model  # type: ignore[import-not-found]  # the wheel has copies of both

HERE = Path(__file__).parent
LIBRARIES = "LD_LIBRARY_PATH"


def main() -> None:
    """Until a signal."""
    given = flags.Parser().parse_args()
    if LIBRARIES not in os.environ:
        # The loader reads it once, at the start of a process.
        os.environ[LIBRARIES] = str(HERE)
        os.execv(sys.executable, [sys.executable, "-m", "sglang.launch_server", *sys.argv[1:]])
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    with tempfile.TemporaryDirectory() as folder:  # it goes on loading after it listens
        path = Path(folder, "model.gguf")
        model.write(path, {})
        parameters.model.path, parameters.model_alias = str(path), {given.served_model_name}
        parameters.n_parallel, parameters.n_ctx = given.max_running_requests, given.max_total_tokens
        parameters.hostnames, parameters.port = [given.host], given.port
        # One thread: two on a busy machine wait for each other.
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
        parameters.endpoint_metrics = given.enable_metrics
        server = xllamacpp.Server(parameters)
        print(f"llama.cpp's server listens on {server.listening_address}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
