#!/usr/bin/env python3
"""Trains a vision transformer with PyTorch's fully_shard on gloo: one process per rank, each with a core of its own.

    torch_fully_shard.py --data FOLDER --weights FILE [--ranks 2] [--steps 10] [--lr 0.001] [--depth 8 --width 64 --heads 4]

Every step takes all images of the folder as one batch, of which rank r has part r, so that their order does not matter. The
weights are those of a run of Stagecoach, whose vit has the same layers; each block is a unit. Rank 0 prints the loss and the
seconds of each step, and at the end by how much its resident memory has grown since before the model was made.
"""

import pathlib
import resource
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing
from safetensors.torch import load_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from torch_epoch import read_training_data
from torch_ranks import flags_of_vit, free_port, join_group

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "nn"))
from golden_vit import Vit


def peak_resident_bytes():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def make_model(flags):
    model = Vit(flags.depth, flags.width, flags.heads)
    model.load_state_dict(load_file(flags.weights))
    mesh = init_device_mesh("cpu", (flags.ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(rank, flags, port):
    join_group(rank, flags.ranks, port)
    images, labels = read_training_data(flags.data)
    x = images.chunk(flags.ranks)[rank].float().div_(127.5).sub_(1)
    y = labels.chunk(flags.ranks)[rank]
    held = peak_resident_bytes()
    model = make_model(flags)
    optimizer = torch.optim.Adam(model.parameters(), flags.lr)
    for step in range(flags.steps):
        torch.distributed.barrier()
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch.distributed.barrier()
        seconds = time.perf_counter() - start
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item() / flags.ranks:.8f} seconds {seconds:.6f}", flush=True)
    if rank == 0:
        print(f"grown {peak_resident_bytes() - held}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    flags = flags_of_vit(lr=0.001)
    torch.multiprocessing.spawn(train, (flags, free_port()), flags.ranks)
