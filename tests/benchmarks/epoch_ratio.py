"""Runs our epoch and the same epoch in PyTorch, in turn, and prints the ratio of their images per second.

    epoch_ratio.py --data FOLDER [--threads 1] [--rounds 5] [--program build/release/bin/ch01_single_device]

Both train `convnet` with Adam and batch 64 on the same pictures, on the same cores (taskset). The machine may be
shared and noisy, so the two alternate and the medians are compared. The Python that runs this needs torch and numpy.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def images_per_second(command, threads):
    cores = ",".join(str(core) for core in range(threads))
    text = subprocess.run(["taskset", "-c", cores, *command], check=True, capture_output=True, text=True).stdout
    return [float(rate) for rate in re.findall(r"^Epoch: .* (\d+) img/s", text, re.MULTILINE)][-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2, help="per round; the last one counts")
    parser.add_argument("--program", default=str(HERE.parents[1] / "build/release/bin/ch01_single_device"))
    flags = parser.parse_args()
    common = ["--data", flags.data, "--threads", str(flags.threads), "--epochs", str(flags.epochs),
              "--batch-size", "64", "--optimizer", "adam", "--lr", "0.001"]  # fmt: skip
    ours, torch = [], []
    for round_number in range(1, flags.rounds + 1):
        ours.append(images_per_second([flags.program, *common], flags.threads))
        torch.append(images_per_second([sys.executable, str(HERE / "torch_epoch.py"), *common], flags.threads))
        print(f"round {round_number}: Stagecoach {ours[-1]:.0f} img/s, PyTorch {torch[-1]:.0f} img/s", flush=True)
    ratio = statistics.median(ours) / statistics.median(torch)
    print(f"{flags.threads} core(s), median of {flags.rounds}: Stagecoach {statistics.median(ours):.0f} img/s, "
          f"PyTorch {statistics.median(torch):.0f} img/s, ratio {ratio:.2f}")  # fmt: skip


main()
