"""Runs our epoch and the same epoch in PyTorch, in turn, and prints the ratio of their images per second.

    epoch_ratio.py --data FOLDER [--model convnet] [--threads 1] [--rounds 5] [--compile]
                   [--program build/release/bin/ch01_single_device]

Both train the model with Adam and batch 64 on the same images, on the same cores (taskset). The machine may be shared
and noisy, so the two alternate and the medians are compared. PyTorch runs in each of its layouts, and with --compile
also compiled; the fastest counts. Both are set beside one core's best matrix-product rate, times the threads: that of
cpu_kernels_benchmark where it is built beside the program or in build/benchmarks, or else of PyTorch's library (1024 x
1024), which is not the fastest on every processor. The Python that runs this needs torch and numpy.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TORCH_EPOCH = [sys.executable, str(HERE / "torch_epoch.py")]
BEST_PRODUCT = """
import time, torch
torch.set_num_threads(1)
a, b = torch.rand(1024, 1024), torch.rand(1024, 1024)
def seconds():
    start = time.perf_counter()
    a @ b
    return time.perf_counter() - start
print(2 * 1024**3 / min(seconds() for _ in range(30)) / 1e9)
"""


def output_of(command, threads=1):
    cores = ",".join(str(core) for core in range(threads))
    return subprocess.run(["taskset", "-c", cores, *command], check=True, capture_output=True, text=True).stdout


def best_product_gflops(program):
    """The best matrix-product rate of a core."""
    rates = [float(output_of([sys.executable, "-c", BEST_PRODUCT]))]
    for folder in (pathlib.Path(program).parent, HERE.parents[1] / "build/benchmarks/bin"):
        if (benchmark := folder / "cpu_kernels_benchmark").exists():
            only_context = ["--benchmark_format=json", "--benchmark_filter=relu", "--benchmark_min_time=0.01"]
            context = json.loads(output_of([str(benchmark), *only_context]))["context"]
            rates.append(float(context["best_gflops"]))
    return max(rates)


def images_per_second(command, threads):
    return [float(rate) for rate in re.findall(r"^Epoch: .* (\d+) img/s", output_of(command, threads), re.MULTILINE)][-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", choices=["convnet", "mlp", "resnet18", "vit"], default="convnet")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2, help="per round; the last one counts")
    parser.add_argument("--compile", action="store_true", help="try torch.compile too")
    parser.add_argument("--program", default=str(HERE.parents[1] / "build/release/bin/ch01_single_device"))
    flags = parser.parse_args()
    common = ["--data", flags.data, "--model", flags.model, "--threads", str(flags.threads), "--epochs",
              str(flags.epochs), "--batch-size", "64", "--optimizer", "adam", "--lr", "0.001"]  # fmt: skip
    ways = {"Stagecoach": [flags.program, *common], "PyTorch": [*TORCH_EPOCH, *common]}
    if flags.model in ("convnet", "resnet18"):  # the others have one convolution or none
        ways["PyTorch, channels last"] = [*TORCH_EPOCH, *common, "--channels-last"]
    if flags.compile:
        ways |= {f"{name}, compiled": [*way, "--compile"] for name, way in ways.items() if name != "Stagecoach"}
    rates = {name: [] for name in ways}
    for round_number in range(1, flags.rounds + 1):
        for name, command in ways.items():
            rates[name].append(images_per_second(command, flags.threads))
        print(f"round {round_number}: " + ", ".join(f"{n} {r[-1]:.0f} img/s" for n, r in rates.items()), flush=True)
    medians = {name: statistics.median(way_rates) for name, way_rates in rates.items()}
    ours = medians.pop("Stagecoach")
    best = max(medians, key=medians.get)
    cores = "core" if flags.threads == 1 else "cores"
    print(f"{flags.model}, {flags.threads} {cores}, median of {flags.rounds}: Stagecoach {ours:.0f} img/s, "
          f"{best} {medians[best]:.0f} img/s, ratio {ours / medians[best]:.2f}")  # fmt: skip
    gflop = float(output_of([*TORCH_EPOCH, *common, "--count"]))
    peak = best_product_gflops(flags.program) * flags.threads
    print(f"{gflop:.3f} GFLOP per image; of the best matrix-product rate, {peak:.0f} GFLOP/s: "
          f"Stagecoach {ours * gflop / peak:.0%}, {best} {medians[best] * gflop / peak:.0%}")  # fmt: skip


main()
