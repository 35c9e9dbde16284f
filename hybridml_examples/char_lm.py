"""A small transformer that learns to write, character by character, eagerly and traced.

The text is Python's own language reference (about 700 kB of English prose and code), which every Python installation
carries as ``pydoc_data.topics``. ``python -m hybridml_examples.char_lm``
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

import hybridml as hm
from hybridml import nn

from .training import STYLES, Run, print_summary, train

NAME = "char_lm"
CONTEXT = 64
BATCH = 16
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))  # printable ASCII; anything else in the text becomes a space


@cache
def text() -> str:
    """The topics of the language reference, one after the other."""
    from pydoc_data.topics import topics

    joined = "\n\n".join(topics[name].strip() for name in sorted(topics))
    return re.sub(r"[^\n -~]", " ", joined)


def encode(words: str) -> np.ndarray:
    """Characters -> int64 positions in the alphabet."""
    table = np.zeros(128, np.int64)
    for position, character in enumerate(ALPHABET):
        table[ord(character)] = position
    return table[np.frombuffer(words.encode("ascii"), np.uint8)]


class Windows(hm.data.Dataset[tuple[hm.Tensor, hm.Tensor]]):
    """Sample k: the `CONTEXT` characters from position k, and the same moved on by one (what is to be predicted)."""

    def __init__(self, codes: np.ndarray) -> None:
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes) - CONTEXT

    def __getitem__(self, index: int) -> tuple[hm.Tensor, hm.Tensor]:
        x, y = self.batch(np.asarray([index]))
        return x[0], y[0]

    def batch(self, indices: np.ndarray) -> tuple[hm.Tensor, hm.Tensor]:
        windows = self.codes[indices[:, None] + np.arange(CONTEXT + 1)]
        return hm.asarray(windows[:, :-1].copy()), hm.asarray(windows[:, 1:].copy())


class CharLM(nn.Module):
    """Characters (n, l) -> logits (n, l, alphabet): embeddings, causal transformer layers, a linear head."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(ALPHABET), width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, codes: hm.Tensor) -> hm.Tensor:
        x = self.characters(codes) + self.positions(hm.arange(codes.shape[1]))
        for layer in self.layers:
            x = layer(x, is_causal=True)
        return self.head(self.norm(x))


def run(style: str, steps: int = 120, seed: int = 0) -> Run:
    """Train in one style. The same seed gives the same start, the same windows and the same dropout."""
    hm.manual_seed(seed)
    model = CharLM()
    optimizer = hm.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = hm.optim.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    loader = hm.data.DataLoader(Windows(encode(text())), batch_size=BATCH, shuffle=True, generator=seed)

    def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        logits = model(x)
        loss = hm.functional.cross_entropy(logits.reshape((-1, len(ALPHABET))), y.reshape((-1,)))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss

    result = train(NAME, style, step, (batch for batch, _ in zip(loader, range(steps), strict=False)), steps)
    result.notes["sample"] = "\n" + write(model, "The ", 120)
    return result


def write(model: CharLM, start: str, length: int, seed: int = 1) -> str:
    """Let the model go on from `start`, drawing each character from its distribution."""
    codes = encode(start).tolist()
    generator = np.random.default_rng(seed)
    model.eval()
    with hm.no_grad():
        for _ in range(length):
            logits = model(hm.asarray([codes[-CONTEXT:]]))[0, -1]
            shares = hm.functional.softmax(logits * 1.5, -1).numpy().astype(np.float64)
            codes.append(int(generator.choice(len(ALPHABET), p=shares / shares.sum())))
    model.train()
    return "".join(ALPHABET[code] for code in codes)


def runs(steps: int = 120, seed: int = 0) -> list[Run]:
    """Both styles."""
    return [run(style, steps, seed) for style in STYLES]


if __name__ == "__main__":
    results = runs()
    print_summary(results)
    print(results[-1].notes["sample"])
