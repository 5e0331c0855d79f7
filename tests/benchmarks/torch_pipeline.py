"""Trains a model as a pipeline in PyTorch, with torch.distributed.pipelining: processes on the CPU that talk by gloo.

    torch_pipeline.py --data FOLDER|random [--model convnet] [--ranks 2] [--schedule gpipe] [--microbatches 8]
                      [--batch-size 256] [--chunks 2] [--split 6,6] [--steps 30] [--warmup 5] [--threads 1] [--lr 0.01]
    torch_pipeline.py --dump-schedule FILE --schedule interleaved1f1b [--ranks 2] [--microbatches 8] [--chunks 2]

Prints one line, a JSON object: the median seconds of a timed step as rank 0 sees it, the pictures a second that follow
from it, and the loss of the last step. The second form trains nothing. It writes the table of a schedule with several
stages per rank: one line per rank, actions between commas, as parallel/schedule/text.h describes.

schedule  gpipe             ScheduleGPipe: one stage per rank
          1f1b              Schedule1F1B: one stage per rank
          interleaved1f1b   ScheduleInterleaved1F1B: --chunks stages per rank; stage s is on rank s % ranks

FOLDER is CIFAR-10 in its binary form, or holds it as cifar-10-batches-bin. `random` makes as much as a few batches. The
pictures lie in memory as bytes; the first rank gathers and normalises a batch, and that is part of the step. The last
rank computes the loss. All ranks draw the same order, so none of this is sent. There is no barrier between timed steps:
rank 0 has the last backward of a step, so its steps are as long as the pipeline's. The loss is sent once, at the end.

Each process has its own core, or --threads cores, where there are enough of them. Batch normalisation sees one
micro-batch at a time. All ranks end with an error as soon as one does.
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import socket
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from torch_epoch import convnet, read_training_data

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved1f1b": ScheduleInterleaved1F1B}
IMAGE_SIZES = {"convnet": 32, "resnet50": 64}
RANDOM_BATCHES = 4  # of random pictures, in memory
START_TIMEOUT = datetime.timedelta(minutes=2)
STEP_TIMEOUT = datetime.timedelta(minutes=10)
CPU = torch.device("cpu")


def training_data(flags):
    """Pictures as bytes and labels."""
    if flags.data != "random":
        images, labels = read_training_data(pathlib.Path(flags.data))
        if len(labels) < flags.batch_size:
            raise ValueError(f"{flags.data} holds {len(labels)} pictures, less than a batch")
        return images, labels
    count, size = RANDOM_BATCHES * flags.batch_size, IMAGE_SIZES[flags.model]
    draw = torch.Generator().manual_seed(1)
    labels = torch.randint(10, (count,), generator=draw)
    return torch.randint(256, (count, 3, size, size), generator=draw, dtype=torch.uint8), labels


def full_batches(count, size):
    """Epoch after epoch, each in an order of its own, the same on all ranks."""
    draw = torch.Generator().manual_seed(2)
    while True:
        yield from torch.randperm(count, generator=draw)[: count - count % size].split(size)


def normalised(pixels, image_size):
    factor = image_size // pixels.shape[-1]
    if factor > 1:  # CIFAR-10 for a model of larger pictures: each pixel becomes a square
        pixels = pixels.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    return pixels.float().div_(127.5).sub_(1)


class Bottleneck(nn.Module):
    """As in nn/residual_blocks.cpp: the 3 x 3 convolution has the stride."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        z = self.relu(self.bn2(self.conv2(y)))
        w = self.bn3(self.conv3(z))
        return self.relu(w + (x if self.shortcut is None else self.shortcut(x)))


def resnet50():
    """For 64 x 64 pictures. The layers as in nn/models.cpp, and one to flatten. No stage may start with an in-place
    layer, so the ReLU is not one."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for group, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << group
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if group > 0 and block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


MODELS = {"convnet": convnet, "resnet50": resnet50}


def even_split(layers, stages):
    """Earlier stages are one layer longer, as in parallel/pipeline/split.h."""
    return [layers // stages + (stage < layers % stages) for stage in range(stages)]


def stages_of(model, split):
    ends = np.cumsum(split).tolist()
    return [model[end - size : end] for size, end in zip(split, ends)]


def make_schedule(flags, parts, rank):
    """`parts` are the modules of all stages. Returns the schedule of this rank, and its own modules."""
    stages = {
        number: PipelineStage(part, number, len(parts), CPU)
        for number, part in enumerate(parts)
        if number % flags.ranks == rank
    }
    own = list(stages.values()) if flags.schedule == "interleaved1f1b" else stages[rank]
    schedule = SCHEDULES[flags.schedule](own, flags.microbatches, loss_fn=nn.functional.cross_entropy)
    return schedule, nn.ModuleList(parts[number] for number in stages)


def make_optimizer(parameters, lr):
    """None for a rank whose layers have no parameters."""
    if not parameters:
        return None
    try:
        return torch.optim.SGD(parameters, lr, momentum=0.9, fused=True)
    except (RuntimeError, TypeError):  # older versions have it for GPUs only, or not at all
        return torch.optim.SGD(parameters, lr, momentum=0.9)


def take_cores(rank, flags):
    """Before the first thread starts, for threads inherit it."""
    torch.set_num_threads(flags.threads)
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= flags.ranks * flags.threads:
        os.sched_setaffinity(0, cores[rank * flags.threads : (rank + 1) * flags.threads])


def train(rank, flags, parent, port):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # comes when the parent ends, and must not be ignored or wait
    if os.getppid() != parent:  # it ended before the signal was asked for
        return
    take_cores(rank, flags)
    if "lo" in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=START_TIMEOUT)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=flags.ranks, timeout=STEP_TIMEOUT)
    torch.manual_seed(0)  # all ranks make the whole model, so it does not depend on the split
    schedule, own = make_schedule(flags, stages_of(MODELS[flags.model](), flags.split), rank)
    optimizer = make_optimizer(list(own.parameters()), flags.lr)
    is_first, is_last = rank == 0, rank == flags.ranks - 1
    images, labels = training_data(flags)
    batches = full_batches(len(labels), flags.batch_size)
    if not is_first:
        images = None

    losses = []

    def step():
        chosen = next(batches)
        inputs = (normalised(images[chosen], IMAGE_SIZES[flags.model]),) if is_first else ()
        if is_last:
            schedule.step(*inputs, target=labels[chosen], losses=losses)
        else:
            schedule.step(*inputs)
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    for _ in range(flags.warmup):  # the first step also finds the shapes that are sent
        step()
    dist.barrier()
    seconds = []
    for _ in range(flags.steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)

    loss = torch.stack(losses).detach().mean() if is_last else torch.zeros(())
    dist.broadcast(loss, flags.ranks - 1)
    if is_first:
        median = statistics.median(seconds)
        report = {
            "seconds_a_step": round(median, 6),
            "images_per_second": round(flags.batch_size / median, 1),
            "loss": round(loss.item(), 6),
            "ranks": flags.ranks,
            "schedule": flags.schedule,
            "torch": torch.__version__,
        }
        print(json.dumps(report), flush=True)
    dist.destroy_process_group()


def dump_schedule(flags):
    """In this process alone: a process group that sends nothing stands for the ranks."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=flags.ranks)
    schedule, _ = make_schedule(flags, [nn.Identity() for _ in range(flags.ranks * flags.chunks)], 0)
    schedule._dump_csv(flags.dump_schedule, format="compute_only")
    dist.destroy_process_group()


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a folder, or the word 'random'")
    parser.add_argument("--model", choices=MODELS, default="convnet")
    parser.add_argument("--ranks", type=positive, default=2)
    parser.add_argument("--batch-size", type=positive, default=256)
    parser.add_argument("--microbatches", type=positive, default=8)
    parser.add_argument("--schedule", choices=SCHEDULES, default="gpipe")
    parser.add_argument("--chunks", type=positive, default=2, help="stages per rank of interleaved1f1b")
    parser.add_argument("--split", help="layers per stage, as 6,6; default: as even as the number of layers allows")
    parser.add_argument("--steps", type=positive, default=30, help="timed steps")
    parser.add_argument("--warmup", type=int, default=5, help="steps before them")
    parser.add_argument("--threads", type=positive, default=1, help="of each process")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--dump-schedule", metavar="FILE", help="write the schedule's table and train nothing")
    flags = parser.parse_args()
    if flags.schedule != "interleaved1f1b":
        flags.chunks = 1
    if flags.dump_schedule:
        if flags.schedule != "interleaved1f1b":  # these keep a table too, but it is not what they run
            parser.error(f"{flags.schedule} has no table to write")
        return flags
    if not flags.data:
        parser.error("--data is missing")
    if flags.batch_size % flags.microbatches:
        parser.error(f"{flags.batch_size} samples do not divide into {flags.microbatches} equal micro-batches")
    if flags.schedule == "1f1b" and flags.microbatches < flags.ranks:
        parser.error("1f1b needs as many micro-batches as ranks")
    with torch.device("meta"):
        layers, stages = len(MODELS[flags.model]()), flags.ranks * flags.chunks
    try:
        flags.split = [int(size) for size in flags.split.split(",")] if flags.split else even_split(layers, stages)
    except ValueError:
        parser.error(f"--split {flags.split} is no list of numbers")
    if len(flags.split) != stages or sum(flags.split) != layers or min(flags.split) < 1:
        split = ",".join(map(str, flags.split))
        parser.error(f"the split {split} does not put {layers} layers in {stages} stages that are not empty")
    return flags


def main():
    flags = parse_flags()
    if flags.dump_schedule:
        dump_schedule(flags)
        return
    # The store takes a free port itself, so no other program can get in between.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=START_TIMEOUT)
    mp.spawn(train, (flags, os.getpid(), store.port), nprocs=flags.ranks)


if __name__ == "__main__":
    main()
