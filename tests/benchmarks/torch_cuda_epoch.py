"""Trains our models in PyTorch on a GPU, in several ways, to find the one that is fastest.

    torch_cuda_epoch.py --data FOLDER|TEXT [--model convnet] [--batch-size 64] [--epochs 3] [--tf32] [--mode eager]
                        [--images-on host] [--channels-last]

Prints one line per epoch in the form of the chapter programs. `cuda_epoch_ratio.py` runs several ways beside ours.

mode       eager    operation by operation
           graphs   the whole step, optimizer included, captured by hand as one CUDA graph for each batch size
           compile  torch.compile(mode="reduce-overhead"), which uses CUDA graphs; needs Triton and a C compiler
images-on  host     in CPU memory; a batch is gathered into pinned memory and copied without waiting, as in Stagecoach
           device   all in GPU memory; a batch is gathered there

Adam is the fused one. The images are bytes until the step begins, as in Stagecoach. The loss is summed on the device,
so nothing waits between steps.
"""

import argparse
import pathlib
import time

import torch
from torch import nn

from torch_epoch import make_model, read_training_data

MODES = ("eager", "graphs", "compile")
PLACES = ("host", "device")


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        z = self.bn2(self.conv2(y))
        return self.relu(z + (x if self.shortcut is None else self.shortcut(x)))


def resnet18():
    """With the small first layer that suits 32 x 32 images, as in nn/models.cpp."""
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    inputs = 64
    for group, outputs in enumerate((64, 128, 256, 512)):
        for block in range(2):
            layers.append(BasicBlock(inputs, outputs, 2 if group > 0 and block == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def allow_tf32(on):
    """For the whole process. PyTorch's own default is a mixture: convolutions with TF32, products without."""
    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on


class Captured:
    """A step of training that is captured as a CUDA graph, one for each batch size, and replayed."""

    WARM_UP = 3  # steps that run as they are: the optimizer makes its state, and libraries choose their algorithms

    def __init__(self, step):
        self.step = step
        self.calls = 0
        self.seen = set()
        self.graphs = {}

    def __call__(self, pixels, target):
        size = len(target)
        self.calls += 1
        if size in self.graphs:
            graph, own_pixels, own_target = self.graphs[size]
            own_pixels.copy_(pixels)
            own_target.copy_(target)
            graph.replay()
        elif self.calls <= self.WARM_UP or size not in self.seen:
            self.seen.add(size)
            self.run_beside(pixels, target)
        else:
            own = pixels.clone(), target.clone()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step(*own)
            self.graphs[size] = (graph, *own)
            graph.replay()

    def run_beside(self, pixels, target):
        """On a stream of its own, as PyTorch asks for before a capture."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step(pixels, target)
        torch.cuda.current_stream().wait_stream(stream)


class Training:
    def __init__(self, model, data, batch_size, device, mode, images_on, channels_last=False, lr=0.001):
        layout = torch.channels_last if channels_last else torch.contiguous_format
        torch.manual_seed(0)
        self.device = torch.device(device)
        self.batch_size = batch_size
        self.on_host = images_on == "host"
        self.images, self.labels = data if self.on_host else (part.to(self.device) for part in data)
        model = make_model(model).to(self.device, memory_format=layout)
        optimizer = torch.optim.Adam(model.parameters(), lr, fused=True, capturable=mode == "graphs")
        self.loss_sum = torch.zeros((), device=self.device)
        self.correct = torch.zeros((), dtype=torch.int64, device=self.device)

        def forward(inputs, target):
            if inputs.dtype == torch.uint8:  # images, and not tokens
                inputs = inputs.to(torch.float32, memory_format=layout).div_(127.5).sub_(1)
            logits, target = model(inputs), target.flatten()
            return nn.functional.cross_entropy(logits, target), (logits.argmax(1) == target).sum()

        if mode == "compile":
            forward = torch.compile(forward, mode="reduce-overhead", dynamic=False)

        def step(pixels, target):
            optimizer.zero_grad(set_to_none=True)
            loss, right = forward(pixels, target)
            loss.backward()
            optimizer.step()
            self.loss_sum.add_(loss.detach(), alpha=len(target))
            self.correct.add_(right)

        self.step = Captured(step) if mode == "graphs" else step

    def batches(self):
        count = len(self.labels)
        if not self.on_host:
            for chosen in torch.randperm(count, device=self.device).split(self.batch_size):
                yield self.images[chosen], self.labels[chosen]
            return
        for chosen in torch.randperm(count).split(self.batch_size):
            yield self.sent(self.images, chosen), self.sent(self.labels, chosen)

    def sent(self, source, chosen):
        """PyTorch keeps the pinned memory until the copy is done."""
        pinned = self.device.type == "cuda"
        staging = torch.empty((len(chosen), *source.shape[1:]), dtype=source.dtype, pin_memory=pinned)
        torch.index_select(source, 0, chosen, out=staging)
        return staging.to(self.device, non_blocking=True)

    def epoch(self):
        """One epoch: seconds, mean loss, accuracy."""
        self.loss_sum.zero_()
        self.correct.zero_()
        self.loss_sum.item()  # waits for the device
        start = time.perf_counter()
        for pixels, target in self.batches():
            self.step(pixels, target)
        loss = self.loss_sum.item()  # here too
        seconds = time.perf_counter() - start
        return seconds, loss / len(self.labels), self.correct.item() / self.labels.numel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--model", choices=["convnet", "resnet18", "vit", "gpt"], default="convnet")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--mode", choices=MODES, default="eager")
    parser.add_argument("--images-on", choices=PLACES, default="host")
    parser.add_argument("--channels-last", action="store_true")
    flags = parser.parse_args()
    allow_tf32(flags.tf32)
    torch.backends.cudnn.benchmark = True
    data = read_training_data(flags.data)
    training = Training(flags.model, data, flags.batch_size, flags.device, flags.mode, flags.images_on,
                        flags.channels_last, flags.lr)  # fmt: skip
    for epoch in range(1, flags.epochs + 1):
        seconds, loss, accuracy = training.epoch()
        print(
            f"Epoch: {epoch}, Loss: {loss:.2f}, acc: {accuracy:.2f}, time cost: {seconds:.2f}s, "
            f"{len(data[1]) / seconds:.0f} img/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
