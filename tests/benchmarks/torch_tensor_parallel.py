#!/usr/bin/env python3
"""Trains a vision transformer with PyTorch's tensor parallelism on gloo: one process per rank, each with a core of its own.

    torch_tensor_parallel.py --data FOLDER --weights FILE [--ranks 2] [--steps 10] [--lr 0.01] [--depth 8 --width 64 --heads 4]

Every step takes all images of the folder as one batch, so that their order does not matter. The weights are those of a
run of Stagecoach, whose vit has the same layers. Rank 0 prints the loss and the seconds of each step.
"""

import pathlib
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing
from safetensors.torch import load_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from torch_epoch import read_training_data
from torch_ranks import flags_of_vit, free_port, join_group

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "nn"))
from golden_vit import Vit


class Attention(nn.Module):
    """Queries, keys and values have layers of their own, since ColwiseParallel gives each rank consecutive features."""

    def __init__(self, width, heads, ranks):
        super().__init__()
        self.size = width // heads
        self.heads = heads // ranks
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        samples, tokens, _ = x.shape
        by_head = lambda y: y.reshape(samples, tokens, self.heads, self.size).transpose(1, 2)
        y = nn.functional.scaled_dot_product_attention(by_head(self.q(x)), by_head(self.k(x)), by_head(self.v(x)))
        return self.proj(y.transpose(1, 2).reshape(samples, tokens, self.heads * self.size))


def weights_for(path):
    """The weights of a run, with those of queries, keys and values apart."""
    weights = {}
    for name, tensor in load_file(path).items():
        if ".qkv." in name:
            for part, values in zip("qkv", tensor.chunk(3)):
                weights[name.replace("qkv", part)] = values
        else:
            weights[name] = tensor
    return weights


def make_model(flags):
    model = Vit(flags.depth, flags.width, flags.heads)
    for block in model.blocks:
        block.attn = Attention(flags.width, flags.heads, flags.ranks)
    model.load_state_dict(weights_for(flags.weights))
    mesh = init_device_mesh("cpu", (flags.ranks,))
    plan = {name: ColwiseParallel() for name in ("attn.q", "attn.k", "attn.v", "mlp.fc1")}
    plan |= {name: RowwiseParallel() for name in ("attn.proj", "mlp.fc2")}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return model


def train(rank, flags, port):
    join_group(rank, flags.ranks, port)
    images, labels = read_training_data(flags.data)
    x = images.float().div_(127.5).sub_(1)
    model = make_model(flags)
    optimizer = torch.optim.SGD(model.parameters(), flags.lr, momentum=0.9)
    for step in range(flags.steps):
        torch.distributed.barrier()
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch.distributed.barrier()
        if rank == 0:
            print(f"step {step} loss {loss.item():.8f} seconds {time.perf_counter() - start:.6f}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    flags = flags_of_vit(lr=0.01)
    torch.multiprocessing.spawn(train, (flags, free_port()), flags.ranks)
