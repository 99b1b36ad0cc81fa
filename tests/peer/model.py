"""A model without training: a GGUF file of a Llama whose every token has one successor.

The residual stream is the token's embedding and nothing else (attention and feed-forward weights are zero, but they
are computed: that is what takes the time of a token). The output row of a token is the embedding of its predecessor.
So greedy decoding walks along given chains: a prompt that ends with a known cue replays its answer, any other one
gets an endless circle of words. Every piece of an answer is a token of its own, so pieces must be unique.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

WIDTH, LAYERS, HEADS, INNER = 512, 2, 8, 2048
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
WORDS = [f" word{number}" for number in range(40)]
"""What it says to any other prompt, again and again."""


def write(path: Path, answers: Mapping[str, Sequence[str]], context: int = 4096) -> None:
    """A model that answers a prompt ending in a cue with the cue's pieces, one token each, and then ends."""
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    numbers: dict[str, int] = {}
    for piece in (*WORDS, *answers, *(piece for pieces in answers.values() for piece in pieces)):
        assert piece not in numbers, f"not unique: {piece!r}"
        numbers[piece] = len(tokens)
        tokens.append((piece, USER_DEFINED))
    after = {numbers[one]: numbers[other] for one, other in zip(WORDS, WORDS[1:] + WORDS[:1], strict=True)}
    after[3] = numbers[WORDS[0]]
    for cue, pieces in answers.items():
        chain = [numbers[cue], *(numbers[piece] for piece in pieces), 2]
        after.update(pairwise(chain))
    _gguf(path, _fields(tokens, context), _tensors(len(tokens), after))


def _fields(tokens: list[tuple[str, int]], context: int) -> dict[str, tuple[int, Any]]:
    u32, f32, boolean, text, texts, floats, integers = 4, 6, 7, 8, 98, 96, 95
    return {
        "general.architecture": (text, "llama"),
        "llama.context_length": (u32, context),
        "llama.embedding_length": (u32, WIDTH),
        "llama.block_count": (u32, LAYERS),
        "llama.feed_forward_length": (u32, INNER),
        "llama.attention.head_count": (u32, HEADS),
        "llama.attention.layer_norm_rms_epsilon": (f32, 1e-5),
        "llama.rope.dimension_count": (u32, WIDTH // HEADS),
        "tokenizer.ggml.model": (text, "llama"),
        "tokenizer.ggml.tokens": (texts, [token for token, _ in tokens]),
        "tokenizer.ggml.scores": (floats, [0.0] * len(tokens)),
        "tokenizer.ggml.token_type": (integers, [kind for _, kind in tokens]),
        "tokenizer.ggml.bos_token_id": (u32, 1),
        "tokenizer.ggml.eos_token_id": (u32, 2),
        "tokenizer.ggml.unknown_token_id": (u32, 0),
        "tokenizer.ggml.add_bos_token": (boolean, False),
        "tokenizer.ggml.add_space_prefix": (boolean, False),
        "tokenizer.chat_template": (text, "{% for message in messages %}{{ message['content'] }}{% endfor %}"),
    }


def _tensors(count: int, after: Mapping[int, int]) -> dict[str, tuple[list[int], bytes]]:
    dice = random.Random(0)
    embedding = [array("f", (dice.choice((-1.0, 1.0)) for _ in range(WIDTH))) for _ in range(count)]
    for byte in range(3, 259):
        embedding[byte] = embedding[3]  # any prompt's last byte leads to the same word
    rows = [array("f", bytes(4 * WIDTH)) for _ in range(count)]
    for token, successor in after.items():
        rows[successor] = array("f", (old + new for old, new in zip(rows[successor], embedding[token], strict=True)))
    ones = array("f", [1.0] * WIDTH).tobytes()
    tensors = {
        "token_embd.weight": ([WIDTH, count], b"".join(row.tobytes() for row in embedding)),
        "output.weight": ([WIDTH, count], b"".join(row.tobytes() for row in rows)),
        "output_norm.weight": ([WIDTH], ones),
    }
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{layer}.{name}.weight"] = ([WIDTH], ones)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors[f"blk.{layer}.{name}.weight"] = ([WIDTH, WIDTH], bytes(4 * WIDTH * WIDTH))
        for name, shape in (("gate", [WIDTH, INNER]), ("up", [WIDTH, INNER]), ("down", [INNER, WIDTH])):
            tensors[f"blk.{layer}.ffn_{name}.weight"] = (shape, bytes(4 * WIDTH * INNER))
    return tensors


def _gguf(path: Path, fields: Mapping[str, tuple[int, Any]], tensors: Mapping[str, tuple[list[int], bytes]]) -> None:
    """GGUF version 3, everything in 32-bit floats (type 0), aligned to 32 bytes: see ggml's docs/gguf.md."""
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)))
        for key, (kind, value) in fields.items():
            file.write(_text(key) + _value(kind, value))
        offset = 0
        for name, (shape, data) in tensors.items():
            file.write(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset))
            offset += len(data) + -len(data) % 32
        file.write(bytes(-file.tell() % 32))
        for _, data in tensors.values():
            file.write(data + bytes(-len(data) % 32))


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind: int, value: Any) -> bytes:
    """A typed value; 90 and more: an array (type 9) of the type that is 90 less."""
    if kind > 90:
        inner = kind - 90
        items = b"".join(_value(inner, one)[4:] for one in value)
        return struct.pack("<IIQ", 9, inner, len(value)) + items
    formats = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}
    return struct.pack("<I", kind) + (_text(value) if kind == 8 else struct.pack(formats[kind], value))
