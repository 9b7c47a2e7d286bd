"""A small GPT that predicts Shakespeare's next character: everything one training step is made of."""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import tesser
from tesser.schedules import warmup_cosine

SEQUENCE, BATCH, STEPS = 64, 16, 1800
WIDTH, HEADS, LAYERS = 128, 4, 4
VOCABULARY = Path(__file__).parent / "data" / "train" / "vocabulary.json"


class Block(nn.Module):
    """[B, S, WIDTH] -> [B, S, WIDTH]: attention over the past, then a feed-forward network, each added to what comes
    in."""

    def __init__(self):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        heads = self.query_key_value(self.attention_norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.feed_forward(x)


class CharacterGPT(nn.Module):
    """tokens [B, SEQUENCE] -> logits [B, SEQUENCE, characters]."""

    def __init__(self, characters):
        super().__init__()
        self.tokens = nn.Embedding(characters, WIDTH)
        self.positions = nn.Parameter(torch.zeros(SEQUENCE, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.02)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions)))


def cross_entropy(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def loss(model, batch):
    tokens = batch["tokens"]
    return cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])


def forward(model, batch):
    tokens = batch["tokens"]
    logits = model(tokens)
    return {"logits": logits, "loss": cross_entropy(logits[:, :-1], tokens[:, 1:])}


def step():
    if not VOCABULARY.exists():
        raise SystemExit(f"{VOCABULARY} is missing: run `python {Path(__file__).parent / 'prepare.py'}` first")
    torch.manual_seed(0)
    model = CharacterGPT(len(json.loads(VOCABULARY.read_text())["characters"]))
    return tesser.Step(
        model,
        loss,
        {"tokens": torch.zeros(BATCH, SEQUENCE + 1, dtype=torch.int64)},
        torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.1),
        schedule=warmup_cosine(3e-3, warmup=100, steps=STEPS, minimum=1e-4),
        clip_norm=1.0,
        forward=forward,
        forward_batch={"tokens": torch.zeros(1, SEQUENCE, dtype=torch.int64)},
        name="shakespeare",
    )
