# SPDX-License-Identifier: BSD-3-Clause
"""The demo's models and data. Both models say which character comes next: the wide one from tables
of n-grams, with much to sum and little to compute; the transformer the other way round. The text
is the licences that every Debian machine has."""

import functools
import pathlib

import torch
from torch import nn
from torch.nn import functional

CONTEXT = 64  # characters that the model sees
# Of the wide model: a row for each n-gram, by its hash, for n = 1, 2, ...; and what a row counts. A
# rare one is learnt faster so, since its gradient is the mean over all characters of a step.
ROWS = 16384
WEIGHTS = (1.0, 2.0, 4.0, 6.0, 8.0, 8.0)
# Of the transformer.
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


class WideModel(nn.Module):
    """Says which character comes next from the n-grams before it, each with a row of its own, which
    are added up. Its 34 MB of gradients take some 30 ms to compute."""

    def __init__(self, characters):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, characters) for _ in WEIGHTS)
        for table in self.tables:
            nn.init.zeros_(table.weight)
        self.bias = nn.Parameter(torch.zeros(characters))

    def forward(self, characters):
        x = self.bias
        n_gram = torch.zeros_like(characters)
        for n, (table, weight) in enumerate(zip(self.tables, WEIGHTS)):
            # Of the windows' first characters, nothing is before the window.
            before = functional.pad(characters, (n, 0), value=-1)[:, :characters.shape[1]]
            n_gram = (n_gram * 1_000_003 + before + 1) % (2**31 - 1)
            x = x + weight * table((n_gram * 2_654_435_761) % 2**40 // 7 % ROWS)
        return x


# By name: the model, its optimizer and the learning rate.
MODELS = {
    "wide": (WideModel, torch.optim.SGD, 1.0),
    "transformer": (CharacterModel, functools.partial(torch.optim.AdamW, weight_decay=0.0), 1e-3),
}


def next_character_loss(model, text, starts):
    """Of predicting the CONTEXT characters after each of `starts`. Calls `model` itself, not what
    it wraps: DDP arms its hook there."""
    windows = torch.stack([text[s:s + CONTEXT + 1] for s in starts])
    predicted = model(windows[:, :-1])
    return functional.cross_entropy(predicted.flatten(0, 1), windows[:, 1:].flatten())
