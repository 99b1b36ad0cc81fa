"""What is asked to measure speed. Only the standard library: it runs on the host."""

from __future__ import annotations

import random

PROSE = (
    "Write a long, calm description of a harbour town in winter: the light, the boats, the people at work, the sounds "
    "of the morning. Use full sentences and no lists. Do not stop early; keep describing new details."
)
CODE = (
    "Write a complete Python module that implements a small in-memory key-value store with expiry, transactions and a "
    "text protocol, with classes, type hints and docstrings. Only code. Do not stop early; add tests at the end."
)
_WORDS = (
    *("river", "stone", "window", "paper", "engine", "garden", "market", "winter", "copper", "signal", "bridge"),
    *(
        "lantern",
        "harbour",
        "orchard",
        "thread",
        "anchor",
        "valley",
        "compass",
        "feather",
        "kettle",
        "ladder",
        "meadow",
    ),
    *("needle", "oyster", "pepper", "quarry", "ribbon", "saddle", "timber", "velvet", "wagon", "yellow"),
)


def long(words: int, seed: int, question: str = "How many different words are in this list, roughly?") -> str:
    """About `words` words in no order, then a question. Another seed shares no prefix: no cache can answer it."""
    dice = random.Random(seed)
    text = " ".join(dice.choice(_WORDS) for _ in range(words))
    return f"List {seed}: {text}\n\n{question}"
