#!/usr/bin/env python3
"""Writes golden_optimizers.safetensors: fifty updates by PyTorch in float64, with clipped gradients and rates that change.

Needs torch and safetensors; run it only to make the file again: python3 tests/nn/golden_optimizers.py
golden_optimizers_test.cpp repeats the updates without PyTorch and compares. Contents, float64, for each run:
  <run>/norms                 [50]: the norm of all gradients in each step, before they are clipped
  <run>/rates                 [50]: the learning rate of each step
  <run>/weight, <run>/bias    [40, 30] and [30], after the last step
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch.optim import lr_scheduler as rates

STEPS = 50
WARM_UP = 5
SHAPES = {"weight": (40, 30), "bias": (30,)}


def noise(shape, number):
    """Numbers in [-1, 1) by integer arithmetic that golden_optimizers_test.cpp repeats; all are exact."""
    count = torch.Size(shape).numel()
    values = [((i * 2654435761 + number * 2246822519 + 12345) % 2**32 >> 16) % 256 - 128 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape) / 128


def warm_cosine(optimizer):
    warm_up = rates.LinearLR(optimizer, start_factor=1 / WARM_UP, total_iters=WARM_UP - 1)
    cosine = rates.CosineAnnealingLR(optimizer, T_max=STEPS - WARM_UP)
    return rates.SequentialLR(optimizer, [warm_up, cosine], milestones=[WARM_UP])


def thirds(optimizer):
    return rates.MultiStepLR(optimizer, milestones=[17, 34], gamma=0.1)


# Name, optimizer for (weight, bias), rates, largest norm.
RUNS = (
    ("adamw", lambda weight, bias: torch.optim.AdamW(
        [{"params": [weight], "weight_decay": 0.1}, {"params": [bias], "weight_decay": 0}], lr=0.01), warm_cosine, 20),
    ("adagrad", lambda weight, bias: torch.optim.Adagrad([weight, bias], lr=0.05, weight_decay=0.01), thirds, 15),
    ("adam", lambda weight, bias: torch.optim.Adam([weight, bias], lr=0.01, weight_decay=0.1), warm_cosine, 20),
    ("sgd", lambda weight, bias: torch.optim.SGD([weight, bias], lr=0.05, momentum=0.9), thirds, 15),
)  # fmt: skip


def train(make_optimizer, make_rates, max_norm):
    parameters = {name: noise(shape, 1000 + i).requires_grad_() for i, (name, shape) in enumerate(SHAPES.items())}
    optimizer = make_optimizer(*parameters.values())
    schedule = make_rates(optimizer)
    norms, learning_rates = [], []
    for step in range(STEPS):
        for i, parameter in enumerate(parameters.values()):
            parameter.grad = parameter.detach() + noise(parameter.shape, 2 * step + i)
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), max_norm).item())
        learning_rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    vectors = {"norms": norms, "rates": learning_rates}
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in vectors.items()} | {
        name: parameter.detach() for name, parameter in parameters.items()}  # fmt: skip


def main():
    golden = {}
    for name, *settings in RUNS:
        golden |= {f"{name}/{part}": value.contiguous() for part, value in train(*settings).items()}
        norms = golden[f"{name}/norms"]
        print(f"{name}: norms from {norms.min().item():.3f} to {norms.max().item():.3f}")
    save_file(golden, pathlib.Path(__file__).with_name("golden_optimizers.safetensors"), {"torch": torch.__version__})


if __name__ == "__main__":
    main()
