#!/usr/bin/env python3
"""Trains the ConvNet with PyTorch's DistributedDataParallel on gloo: a process a rank, each with a core of its own.

    torch_ddp.py --data FOLDER [--ranks 2] [--epochs 2] [--batch-size 128]

`--batch-size` is that of all ranks together, as in chapter 6. Rank 0 prints the epochs in the form of the chapters.
"""

import argparse
import pathlib
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch import nn

from torch_epoch import convnet, read_training_data
from torch_ranks import free_port, join_group


def train(rank, flags, port):
    join_group(rank, flags.ranks, port)
    torch.manual_seed(0)
    images, labels = read_training_data(flags.data)
    model = nn.parallel.DistributedDataParallel(convnet(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)
    count, shard = len(images), flags.batch_size // flags.ranks
    for epoch in range(1, flags.epochs + 1):
        torch.distributed.barrier()
        start = time.perf_counter()
        order = torch.randperm(count)  # the same on all ranks
        loss_sum = torch.zeros(())
        for batch in order.split(flags.batch_size):
            chosen = batch[rank * shard : (rank + 1) * shard] if len(batch) == flags.batch_size else batch[rank :: flags.ranks]
            logits = model(images[chosen].float().div_(127.5).sub_(1))
            loss = nn.functional.cross_entropy(logits, labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach() * len(chosen)
        torch.distributed.barrier()
        seconds = time.perf_counter() - start
        if rank == 0:
            mean = loss_sum.item() * flags.ranks / count
            print(f"Epoch: {epoch}, Loss: {mean:.2f}, time cost: {seconds:.2f}s, {count / seconds:.0f} img/s", flush=True)
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=128)
    flags = parser.parse_args()
    torch.multiprocessing.spawn(train, (flags, free_port()), nprocs=flags.ranks)


if __name__ == "__main__":
    main()
