#!/usr/bin/env python3
"""Writes golden_convnet.safetensors: ten training steps of the convnet as PyTorch computes them in float64.

Needs torch and safetensors; run it only to make the file again: python3 tests/nn/golden_convnet.py
golden_test.cpp repeats the steps without PyTorch and compares; golden_vit.py and golden_gpt.py do the same for
vit and gpt. Contents (float64 unless said otherwise):
  weights/<parameter>        the weights before the first step, float32
  gradients/<parameter>      the gradients of the first step, rounded to float32
  <optimizer>/losses         [10], for optimizer sgd (momentum) and adam, each from the same weights
  <optimizer>/norms          [10, parameters]: the L2 norm of each gradient in each step
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

STEPS = 10
BATCH = 8


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv1(x).relu(), 2)
        x = nn.functional.max_pool2d(self.conv2(x).relu(), 2)
        x = self.fc1(x.flatten(1)).relu()
        return self.fc3(self.fc2(x).relu())


def make_batch():
    """Images and labels by integer arithmetic that golden_test.cpp repeats; all values are exact."""
    count = 3 * 32 * 32
    labels = [(3 * n + 1) % 10 for n in range(BATCH)]
    noise = [((i * 2654435761 + 12345) % 2**32 >> 16) % 128 for i in range(BATCH * count)]
    pixels = [noise[i] + 14 * labels[i // count] for i in range(BATCH * count)]  # 0 … 253
    images = (torch.tensor(pixels, dtype=torch.float64) - 128) / 128
    return images.reshape(BATCH, 3, 32, 32), torch.tensor(labels)


def train(model, optimizer, golden, name, batch):
    inputs, labels = batch
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        losses.append(loss.item())
        norms.append([p.grad.norm().item() for p in model.parameters()])
        if step == 0:
            golden.update({f"gradients/{n}": p.grad.float() for n, p in model.named_parameters()})
        optimizer.step()
    golden[f"{name}/losses"] = torch.tensor(losses, dtype=torch.float64)
    golden[f"{name}/norms"] = torch.tensor(norms, dtype=torch.float64)


def write_golden(make_model, name, batch=None):
    batch = batch or make_batch()
    torch.set_num_threads(1)
    torch.manual_seed(42)
    start = make_model().state_dict()
    golden = {f"weights/{name}": value.clone() for name, value in start.items()}
    for optimizer_name in ("sgd", "adam"):
        model = make_model().double()
        model.load_state_dict(start)
        if optimizer_name == "sgd":
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        else:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
        train(model, optimizer, golden, optimizer_name, batch)
        print(optimizer_name, golden[f"{optimizer_name}/losses"].tolist())
    save_file(golden, pathlib.Path(__file__).with_name(f"golden_{name}.safetensors"), {"torch": torch.__version__})


if __name__ == "__main__":
    write_golden(ConvNet, "convnet")
