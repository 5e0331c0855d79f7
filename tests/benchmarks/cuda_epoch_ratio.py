"""Runs our epochs and PyTorch's on the same GPU, in turn, and prints a Markdown table with the ratio.

    cuda_epoch_ratio.py --data FOLDER|TEXT [--model convnet] [--batch-size 64] [--tf32] [--rounds 3] [--program FILE]

PyTorch runs in every way of torch_cuda_epoch.py that works here; ours is compared with the fastest of them. Each way
stays in memory, so that it is compiled once, and trains two epochs that do not count. Our program starts anew each
round, and its first two epochs do not count. Of each round the median of its epochs is taken, and the medians of the
rounds are compared. What is there when the time is over, or the program is told to end, is printed. Needs torch and
numpy.
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

from torch_cuda_epoch import MODES, PLACES, Training, allow_tf32
from torch_epoch import read_training_data

HERE = pathlib.Path(__file__).resolve().parent
OURS = "Stagecoach"
WARM_UP = 2  # epochs: a batch of a new size is captured when it comes for the second time


class TimeOver(BaseException):
    """No Exception: a compiler that takes those for its own would go on."""


def our_rate(flags):
    """Images per second: the median of the epochs behind the first two."""
    data = f"text:{flags.data}" if flags.data.is_file() else str(flags.data)
    command = [flags.program, "--data", data, "--model", flags.model, "--device", flags.device,
               "--batch-size", str(flags.batch_size), "--epochs", str(WARM_UP + flags.epochs), "--optimizer", "adam",
               "--lr", "0.001"] + (["--tf32"] if flags.tf32 else [])  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    rates = re.findall(r"^Epoch: .* (\d+) img/s", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not rates:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        print(f"{flags.program} ended with {done.returncode} and said: {said}\n", flush=True)
        return None
    return statistics.median(float(rate) for rate in rates[WARM_UP:])


@contextlib.contextmanager
def time_limit(end):
    """Raises TimeOver at the time `end`, and each second from then on: compiling may take a minute, and the rounds need
    time too."""

    def stop(*_):
        raise TimeOver("the time for warming up was over")

    if time.monotonic() >= end:
        stop()
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, end - time.monotonic(), 1)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # first: it may ring once more
        signal.setitimer(signal.ITIMER_REAL, 0)


def torch_ways(flags, data, end):
    """All ways that work here and are warm before the time `end`: name and training."""
    modes, places, layouts = MODES, PLACES, (False,)
    if flags.model != "convnet":  # their steps are long: the copies vanish beside them
        places = ("device",)
    if flags.model == "resnet18":  # and the layout matters
        layouts = (False, True)
    if flags.device == "cpu":
        modes, places = ("eager",), ("host",)
    ways = {}
    for mode, place, channels_last in itertools.product(modes, places, layouts):
        name = f"PyTorch, {mode}, images on the {place}{', channels last' if channels_last else ''}"
        try:
            with time_limit(end):
                way = Training(flags.model, data, flags.batch_size, flags.device, mode, place, channels_last)
                for _ in range(WARM_UP):
                    way.epoch()
            ways[name] = way
        except (Exception, TimeOver) as error:  # a way that does not work here is said to be so, and the others go on
            words = str(error).strip().splitlines()
            print(f"{name}: not run: {type(error).__name__}: {words[0] if words else ''}\n", flush=True)
    return ways


def measure(flags, data, ways, rates, start):
    """Fills `rates`, round by round."""
    for _ in range(flags.rounds):
        round_start = time.monotonic()
        if flags.device == "cuda":
            torch.cuda.empty_cache()  # room for ours
        rate = our_rate(flags)
        if rate is None:  # it has said why; theirs are worth knowing all the same
            rates.pop(OURS, None)
        elif OURS in rates:
            rates[OURS].append(rate)
        for name, way in ways.items():
            rates[name].append(len(data[1]) / statistics.median(way.epoch()[0] for _ in range(flags.epochs)))
        now = time.monotonic()
        if now + (now - round_start) > start + flags.limit:  # no time for one more
            break


def print_table(rates):
    """Whether ours and theirs could be compared."""
    medians = {name: statistics.median(values) for name, values in rates.items() if values}
    theirs = [name for name in medians if name != OURS]
    fastest = max(theirs, key=medians.get) if theirs else None
    print("| | img/s, median | all rounds |\n|---|---:|---|")
    for name, median in medians.items():
        print(f"| {name} | {median:.0f} | {', '.join(f'{value:.0f}' for value in rates[name])} |")
    if fastest and OURS in medians:
        print(f"\nRatio to the fastest of PyTorch ({fastest.removeprefix('PyTorch, ')}): "
              f"{medians[OURS] / medians[fastest]:.2f}\n")  # fmt: skip
    return bool(theirs) and OURS in medians


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--model", choices=["convnet", "resnet18", "vit", "gpt"], default="convnet")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try this script")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="that count, a round")
    parser.add_argument("--program", default=str(HERE.parents[1] / "build/cuda/bin/ch01_single_device"))
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds: fewer ways and rounds when over")
    flags = parser.parse_args()
    start = time.monotonic()
    allow_tf32(flags.tf32)
    torch.backends.cudnn.benchmark = True
    data = read_training_data(flags.data)

    steps = -(-len(data[1]) // flags.batch_size)
    print(f"{flags.model}, batch {flags.batch_size}, {'TF32' if flags.tf32 else 'float32'}, Adam, {steps} steps per "
          f"epoch, PyTorch {torch.__version__}.\n", flush=True)  # fmt: skip
    ways = torch_ways(flags, data, start + min(0.7 * flags.limit, 1e9))
    rates = {OURS: []} | {name: [] for name in ways}

    def end(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the table comes next
        raise TimeOver

    signal.signal(signal.SIGTERM, end)
    with contextlib.suppress(TimeOver):
        measure(flags, data, ways, rates, start)
    if not print_table(rates):
        sys.exit("nothing could be compared")


if __name__ == "__main__":
    main()
