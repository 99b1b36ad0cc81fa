"""The real sglang-kt server on a CPU, with a small model of random weights: for what talks to it, not for its speed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ktfleet.measure.ask import Server, page

WITHOUT_CARD = Path(__file__).with_name("without_card")
START_S = 240
HIDDEN, LAYERS = 768, 8  # a token takes about as long as a token of a real one, or half
WORDS = 255
END = "<end>"


@dataclass(frozen=True)
class Running:
    """A server and its processes. model: its folder. interval: the tokens of a chunk that it waits for."""

    server: Server
    pid: int
    log: Path
    model: Path
    interval: int

    def scheduler(self) -> int:
        """The process that decodes; the one that speaks HTTP is another."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if path.read_bytes().startswith(b"sglang::scheduler") and os.getpgid(int(path.parent.name)) == self.pid:
                    return int(path.parent.name)
        raise AssertionError(f"no scheduler: {self.log.read_text()[-2000:]}")


@contextmanager
def serving(python: Path, folder: Path, interval: int) -> Iterator[Running]:
    """Start it, and wait until it is healthy. Afterwards all of its processes are gone."""
    model = folder / "model"
    write_model(model)
    port = free_port()
    log = folder / "server.log"
    environment = {
        **os.environ,
        "PYTHONPATH": str(WITHOUT_CARD),
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [
        *(str(python), "-m", "sglang.launch_server", "--model-path", str(model), "--load-format", "dummy"),
        *("--device", "cpu", "--attention-backend", "torch_native", "--skip-server-warmup", "--sleep-on-idle"),
        # Without these limits it takes 16 GB.
        *("--max-total-tokens", "16384", "--mem-fraction-static", "0.05", "--disable-radix-cache"),
        *("--enable-metrics", "--host", "127.0.0.1", "--port", str(port), "--stream-interval", str(interval)),
    ]
    with log.open("w") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
    running = Running(Server(f"http://127.0.0.1:{port}"), process.pid, log, model, interval)
    try:
        deadline = time.monotonic() + START_S
        while page(running.server, "/health", 20).status != 200:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(1)
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # after SIGTERM it may run on
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_model(folder: Path) -> None:
    """Configuration and tokenizer of a small Qwen2; its weights are random ("dummy")."""
    folder.mkdir()
    vocabulary = [byte_text(byte) for byte in range(256)] + [END] + [f"Ġword{number}" for number in range(WORDS)]
    end = vocabulary.index(END)
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": HIDDEN,
        "intermediate_size": 4 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": len(vocabulary),
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": end,
        "eos_token_id": end,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": end, "content": END, **special}],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {text: number for number, text in enumerate(vocabulary)}, "merges": []},
    }
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }
    for name, content in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", about)):
        (folder / f"{name}.json").write_text(json.dumps(content))


def byte_text(byte: int) -> str:
    """The printable character that stands for a byte, as GPT-2 chose them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [other for other in range(256) if other not in printable]
    return chr(byte if byte in printable else 256 + others.index(byte))
