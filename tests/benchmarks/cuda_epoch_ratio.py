"""Runs our epochs and PyTorch's on the same GPU, in turn, and prints a Markdown table with the ratio.

    cuda_epoch_ratio.py --data FOLDER [--model convnet] [--batch-size 64] [--tf32] [--rounds 3] [--program FILE]

PyTorch runs in every way of torch_cuda_epoch.py that works here; ours is compared with the fastest of them. Each way
stays in memory, so that it is compiled once, and trains two epochs that do not count. Our program starts anew each
round, and its last epoch counts. The medians of the rounds are compared. Needs torch and numpy.
"""

import argparse
import contextlib
import itertools
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

import torch

from torch_cuda_epoch import MODES, PICTURES, Training, allow_tf32
from torch_epoch import read_training_data

HERE = pathlib.Path(__file__).resolve().parent
OURS = "Stagecoach"
WARM_UP = 2  # epochs: a batch of a new size is captured when it comes for the second time


def our_rate(flags):
    """Images per second of the last epoch."""
    command = [flags.program, "--data", str(flags.data), "--model", flags.model, "--device", flags.device,
               "--batch-size", str(flags.batch_size), "--epochs", str(flags.our_epochs), "--optimizer", "adam",
               "--lr", "0.001"] + (["--tf32"] if flags.tf32 else [])  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    rates = re.findall(r"^Epoch: .* (\d+) img/s", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not rates:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        sys.exit(f"{flags.program} ended with {done.returncode} and said: {said}")
    return float(rates[-1])


@contextlib.contextmanager
def time_limit(end):
    """Raises TimeoutError at the time `end`: compiling may take a minute, and the rounds need time too."""

    def stop(*_):
        raise TimeoutError("the time for warming up was over")

    if time.monotonic() >= end:
        stop()
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, end - time.monotonic())
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def torch_ways(flags, data, end):
    """All ways that work here and are warm before the time `end`: name and training."""
    modes, pictures, layouts = MODES, PICTURES, (False,)
    if flags.model == "resnet18":  # its steps are long: the copies vanish beside them, and the layout matters
        pictures, layouts = ("device",), (False, True)
    if flags.device == "cpu":
        modes, pictures = ("eager",), ("host",)
    ways = {}
    for mode, place, channels_last in itertools.product(modes, pictures, layouts):
        name = f"PyTorch, {mode}, pictures on the {place}{', channels last' if channels_last else ''}"
        try:
            with time_limit(end):
                way = Training(flags.model, data, flags.batch_size, flags.device, mode, place, channels_last)
                for _ in range(WARM_UP):
                    way.epoch()
            ways[name] = way
        except Exception as error:  # a way that does not work here is said to be so, and the others go on
            words = str(error).strip().splitlines()
            print(f"{name}: not run: {type(error).__name__}: {words[0] if words else ''}\n", flush=True)
    return ways


def print_table(rates):
    medians = {name: statistics.median(values) for name, values in rates.items()}
    theirs = [name for name in medians if name != OURS]
    fastest = max(theirs, key=medians.get) if theirs else None
    print("| | img/s, median | all rounds |\n|---|---:|---|")
    for name, values in rates.items():
        print(f"| {name} | {medians[name]:.0f} | {', '.join(f'{value:.0f}' for value in values)} |")
    if fastest:
        print(f"\nRatio to the fastest of PyTorch ({fastest.removeprefix('PyTorch, ')}): "
              f"{medians[OURS] / medians[fastest]:.2f}\n")  # fmt: skip
    return bool(theirs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--model", choices=["convnet", "resnet18"], default="convnet")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try this script")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--our-epochs", type=int, default=3, help="per round; the last one counts")
    parser.add_argument("--program", default=str(HERE.parents[1] / "build/cuda/bin/ch01_single_device"))
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds: fewer ways and rounds when over")
    flags = parser.parse_args()
    start = time.monotonic()
    allow_tf32(flags.tf32)
    torch.backends.cudnn.benchmark = True
    data = read_training_data(flags.data)

    steps = -(-len(data[1]) // flags.batch_size)
    print(f"{flags.model}, batch {flags.batch_size}, {'TF32' if flags.tf32 else 'float32'}, Adam, {steps} steps an "
          f"epoch, PyTorch {torch.__version__}.\n", flush=True)  # fmt: skip
    ways = torch_ways(flags, data, start + min(0.7 * flags.limit, 1e9))
    rates = {OURS: []} | {name: [] for name in ways}
    for _ in range(flags.rounds):
        round_start = time.monotonic()
        if flags.device == "cuda":
            torch.cuda.empty_cache()  # room for ours
        rates[OURS].append(our_rate(flags))
        for name, way in ways.items():
            rates[name].append(len(data[1]) / way.epoch()[0])
        now = time.monotonic()
        if now + (now - round_start) > start + flags.limit:  # no time for one more
            break
    if not print_table(rates):
        sys.exit("no way of PyTorch works here")


if __name__ == "__main__":
    main()
