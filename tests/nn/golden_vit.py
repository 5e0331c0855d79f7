#!/usr/bin/env python3
"""Writes golden_vit.safetensors, for a small vit, as golden_convnet.py does for the convnet.

Needs torch and safetensors; run it only to make the file again: python3 tests/nn/golden_vit.py
The modules have the names of nn/transformer.h, so they load the weights of a run:
Vit(depth=8, width=64, heads=4).load_state_dict(safetensors.torch.load_file("run/weights.safetensors"))
"""

import torch
from torch import nn


class PatchEmbedding(nn.Module):
    def __init__(self, image_size, patch, width):
        super().__init__()
        self.pos_embed = nn.Parameter(0.02 * torch.randn((image_size // patch) ** 2, width))
        self.proj = nn.Conv2d(3, width, patch, stride=patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2) + self.pos_embed


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        samples, tokens, width = x.shape
        qkv = self.qkv(x).reshape(samples, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(*qkv)
        return self.proj(y.transpose(1, 2).reshape(samples, tokens, width))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, 4 * width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    def __init__(self, depth=8, width=64, heads=4, image_size=32, classes=10):
        super().__init__()
        self.patch_embed = PatchEmbedding(image_size, 4, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch_embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


if __name__ == "__main__":
    from golden_convnet import write_golden  # needs safetensors, and the model alone does not

    write_golden(lambda: Vit(depth=2, width=16, heads=2), "vit")
