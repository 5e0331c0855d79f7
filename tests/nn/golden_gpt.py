#!/usr/bin/env python3
"""Writes golden_gpt.safetensors, for a small gpt, and golden_gpt_tied.safetensors, for one whose head is tied, as
golden_convnet.py does for the convnet.

Needs torch and safetensors; run it only to make the file again: python3 tests/nn/golden_gpt.py
The modules have the names of nanoGPT, so they load the weights of a run:
Gpt(depth=4, width=64, heads=4, context=64).load_state_dict(safetensors.torch.load_file("run/weights.safetensors"))
"""

import functools

import torch
from torch import nn

CONTEXT = 12


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        samples, tokens, width = x.shape
        qkv = self.c_attn(x).reshape(samples, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(*qkv, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(samples, tokens, width))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.c_fc = nn.Linear(width, hidden)
        self.c_proj = nn.Linear(hidden, width)

    def forward(self, x):
        return self.c_proj(nn.functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, 4 * width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """Without dropout. Tokens [N, context] to logits [N context, vocabulary]. A tied head has the weights of the
    embedding, and no bias."""

    def __init__(self, depth=4, width=64, heads=4, context=64, vocabulary=256, tied=False):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width),
            "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(Block(width, heads) for _ in range(depth)),
            "ln_f": nn.LayerNorm(width),
        })  # fmt: skip
        self.lm_head = nn.Linear(width, vocabulary, bias=not tied)
        if tied:
            self.transformer.wte.weight = self.lm_head.weight

    def forward(self, tokens):
        parts = self.transformer
        x = parts.wte(tokens) + parts.wpe.weight
        for block in parts.h:
            x = block(x)
        return self.lm_head(parts.ln_f(x)).flatten(0, 1)


def make_batch(samples):
    """Sequences of tokens, and the token after each, by integer arithmetic that golden_test.cpp repeats."""
    count = samples * (CONTEXT + 1)
    tokens = torch.tensor([((i * 2654435761 + 12345) % 2**32 >> 16) % 256 for i in range(count)])
    sequences = tokens.reshape(samples, CONTEXT + 1)
    return sequences[:, :-1], sequences[:, 1:].flatten()


if __name__ == "__main__":
    from golden_convnet import BATCH, write_golden  # needs safetensors, and the model alone does not

    for tied, name in ((False, "gpt"), (True, "gpt_tied")):
        write_golden(functools.partial(Gpt, 2, 16, 2, CONTEXT, tied=tied), name, make_batch(BATCH))
