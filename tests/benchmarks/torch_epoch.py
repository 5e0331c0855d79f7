"""Trains the same model in PyTorch, on the CPU, in the way that suits PyTorch best that we found.

    torch_epoch.py --data FOLDER --threads N --epochs E [--model convnet] [--batch-size 64] [--optimizer adam]
                   [--lr 0.001] [--channels-last] [--compile] [--count]

Prints one line per epoch in the form of the chapter programs, so that `epoch_ratio.py` reads both alike. The data are in
memory as bytes and are normalised batch by batch, exactly as in Stagecoach; there is no loader process to wait for. The
loss is summed without reading it back, so nothing stops between steps. With --count it does not train, but prints the
GFLOP that a training step takes per image.
"""

import argparse
import pathlib
import sys
import time

import numpy as np
import torch
from torch import nn


def read_batches(paths):
    records = np.concatenate([np.fromfile(path, np.uint8).reshape(-1, 3073) for path in sorted(paths)])
    return (
        torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()),
        torch.from_numpy(records[:, 0].astype(np.int64)),
    )


def read_text(path, context=64):
    """The bytes of a file as in datasets/text.h: sequences [N, context], and the byte after each."""
    text = np.fromfile(path, np.uint8)
    text = torch.from_numpy(text[: len(text) - len(text) // 10].astype(np.int64))
    count = (len(text) - 1) // context * context
    return text[:count].reshape(-1, context), text[1 : count + 1].reshape(-1, context)


def read_training_data(folder):
    if folder.is_file():
        return read_text(folder)
    nested = folder / "cifar-10-batches-bin"
    return read_batches((nested if nested.is_dir() else folder).glob("data_batch_*.bin"))


def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def mlp(depth=8, width=256):
    layers = [nn.MaxPool2d(4), nn.Flatten(), nn.Linear(192, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def make_model(name):
    if name == "resnet18":
        from torch_cuda_epoch import resnet18

        return resnet18()
    if name in ("vit", "gpt"):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "nn"))
        from golden_gpt import Gpt
        from golden_vit import Vit

        return Vit() if name == "vit" else Gpt()
    return mlp() if name == "mlp" else convnet()


def count_gflop(model):
    """Returns the GFLOP of a forward and a backward, per image: those of matrix products and convolutions."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    images = 8
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(torch.zeros(images, 3, 32, 32)).sum().backward()
    return counter.get_total_flops() / images / 1e9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--model", choices=["convnet", "mlp", "resnet18", "vit"], default="convnet")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--compile", action="store_true", help="torch.compile the forward and the loss")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    torch.manual_seed(0)

    model = make_model(flags.model)
    if flags.count:
        return print(count_gflop(model))
    images, labels = read_training_data(flags.data)
    layout = torch.channels_last if flags.channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)
    parameters = list(model.parameters())
    optimizer = (
        torch.optim.Adam(parameters, flags.lr, fused=True)
        if flags.optimizer == "adam"
        else torch.optim.SGD(parameters, flags.lr, momentum=0.9, fused=True)
    )

    def forward(pixels, target):
        logits = model(pixels.float().div_(127.5).sub_(1).to(memory_format=layout))
        return nn.functional.cross_entropy(logits, target), (logits.argmax(1) == target).sum()

    step = torch.compile(forward) if flags.compile else forward
    for epoch in range(1, flags.epochs + 1):
        start = time.perf_counter()
        order = torch.randperm(len(images))
        loss_sum, correct = torch.zeros(()), torch.zeros((), dtype=torch.int64)
        for chosen in order.split(flags.batch_size):
            loss, right = step(images[chosen], labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach() * len(chosen)
            correct += right
        seconds = time.perf_counter() - start
        count = len(images)
        print(
            f"Epoch: {epoch}, Loss: {loss_sum.item() / count:.2f}, acc: {correct.item() / count:.2f}, "
            f"time cost: {seconds:.2f}s, {count / seconds:.0f} img/s",
            flush=True,
        )


if __name__ == "__main__":  # torch_cuda_epoch.py uses the parts
    main()
