# SPDX-License-Identifier: BSD-3-Clause
"""The demo's model and data: a character-level transformer, and the licence texts that every
Debian machine has."""

import pathlib

import torch
from torch import nn
from torch.nn import functional

CONTEXT = 64  # characters that the model sees
WIDTH = 128
HEADS = 4
LAYERS = 4


def load_text(folder):
    """@return (a tensor of character numbers, how many different ones there are)."""
    files = sorted(p for p in pathlib.Path(folder).iterdir() if p.is_file() and not p.is_symlink())
    text = "".join(p.read_text(encoding="utf-8", errors="replace") for p in files)
    if len(text) < 10 * CONTEXT:
        raise SystemExit(f"{folder}: {len(text)} characters of text are too few to train on")
    alphabet = {c: i for i, c in enumerate(sorted(set(text)))}
    return torch.tensor([alphabet[c] for c in text]), len(alphabet)


class Block(nn.Module):
    """Attention to what came before, then a perceptron, each added to its input."""

    def __init__(self):
        super().__init__()
        self.norm_attention = nn.LayerNorm(WIDTH)
        # Without bias: a key's bias has no gradient but rounding, and Adam would blow that up.
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.merge = nn.Linear(WIDTH, WIDTH)
        self.norm_perceptron = nn.LayerNorm(WIDTH)
        self.perceptron = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.register_buffer("future", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.query_key_value(self.norm_attention(x))
        query, key, value = heads.view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5 + self.future
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + self.merge(mixed)
        return x + self.perceptron(self.norm_perceptron(x))


class CharacterModel(nn.Module):
    """Says which character comes next, after each of CONTEXT characters."""

    def __init__(self, characters):
        super().__init__()
        self.character = nn.Embedding(characters, WIDTH)
        self.position = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.next = nn.Linear(WIDTH, characters)

    def forward(self, characters):
        x = self.character(characters) + self.position
        return self.next(self.norm(self.blocks(x)))


def next_character_loss(model, text, starts):
    """Of predicting the CONTEXT characters after each of `starts`. Calls `model` itself, not what
    it wraps: DDP arms its hook there."""
    windows = torch.stack([text[s:s + CONTEXT + 1] for s in starts])
    predicted = model(windows[:, :-1])
    return functional.cross_entropy(predicted.flatten(0, 1), windows[:, 1:].flatten())
