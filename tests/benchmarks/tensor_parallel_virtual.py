#!/usr/bin/env python3
"""Times the three directions of chapter 8 on the virtual clock, beside what links and measured computation predict.

    tensor_parallel_virtual.py [--rounds 3] [--programs build/release/bin] [--svg FILE]

Trains a vision transformer on generated images over eight ranks: with data, pipeline and tensor parallelism alone and
mixed, over links of several bandwidths; and with all three in every order of ranks, over fast links within a node and slow
ones between nodes. The runs alternate; what is shown are medians over all epochs except the first of every run.
`predicted` is what the program says with the computation of the slowest ranks between any two exchanges, measured in the
same epochs, and the formulas of the links. Prints Markdown; --svg draws the step time over the bandwidth.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import line_chart

HERE = pathlib.Path(__file__).resolve().parent
EPOCHS, IMAGES, BATCH = 3, 256, 128
MODEL = ["--model", "vit", "--depth", 8, "--width", 128, "--heads", 8]
MESHES = {
    "data": ["--mesh", "dp=8"],
    "pipeline": ["--mesh", "pp=8", "--microbatches", 8, "--split", "2,1,1,1,1,1,1,4"],
    "tensor": ["--mesh", "tp=8"],
    "all three": ["--mesh", "dp=2,pp=2,tp=2", "--microbatches", 4, "--split", "5,7"],
}
LATENCY = "5us"
GIGABYTES = (1, 3, 10, 30, 100)  # per second
NODES = "inner=nvlink4,outer=ethernet100,per-node=4"
ORDERS = ("tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "dp-pp-tp", "pp-tp-dp", "pp-dp-tp")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    parser.add_argument("--svg", type=pathlib.Path)
    flags = parser.parse_args()
    link = lambda rate: ["--link", f"{LATENCY},{rate}GB/s"]
    runs = {(mesh, rate): [*more, *link(rate)] for mesh, more in MESHES.items() for rate in GIGABYTES}
    runs |= {order: [*MESHES["all three"], "--link", NODES, "--rank-order", order] for order in ORDERS}
    epochs = {name: [] for name in runs}
    with tempfile.TemporaryDirectory() as folder:
        data, out = pathlib.Path(folder) / "data", pathlib.Path(folder) / "out"
        make = [flags.programs / "make_generated_data", "--train", IMAGES, "--test", 64, data]
        subprocess.run([*map(str, make)], check=True, capture_output=True)
        for _ in range(flags.rounds):
            for name, more in runs.items():
                command = [flags.programs / "ch08_tensor_parallel", "--data", data, *MODEL, "--batch-size", BATCH,
                           "--epochs", EPOCHS, "--clock", "virtual", "--out", out, *more]  # fmt: skip
                subprocess.run([*map(str, command)], check=True, capture_output=True)
                epochs[name] += [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()[1:]]

    step = lambda name, key: 1e3 * statistics.median(epoch[key] for epoch in epochs[name]) * BATCH / IMAGES  # milliseconds
    measured = {name: step(name, "seconds") for name in runs}
    predicted = {name: step(name, "predicted_seconds") for name in runs}
    ratio = {name: measured[name] / predicted[name] for name in runs}

    print("| mesh | GB/s | measured, ms per step | predicted | measured / predicted |")
    print("|---|---:|---:|---:|---:|")
    for mesh, rate in [(mesh, rate) for mesh in MESHES for rate in GIGABYTES]:
        name = (mesh, rate)
        print(f"| {mesh} | {rate} | {measured[name]:.1f} | {predicted[name]:.1f} | {ratio[name]:.3f} |")
    print(f"\nAll three directions, `{NODES}`:\n\n| order | measured, ms per step | predicted | measured / predicted |")
    print("|---|---:|---:|---:|")
    for order in ORDERS:
        print(f"| {order} | {measured[order]:.1f} | {predicted[order]:.1f} | {ratio[order]:.3f} |")
    print(f"\nmeasured / predicted: {min(ratio.values()):.3f} to {max(ratio.values()):.3f}")
    if flags.svg:
        curves = {f"{mesh}, {kind}": [(rate, times[mesh, rate]) for rate in GIGABYTES]
                  for mesh in ("data", "pipeline", "tensor")
                  for kind, times in (("measured", measured), ("predicted", predicted))}  # fmt: skip
        title = f"milliseconds per step: vit on 8 ranks, latency {LATENCY}, virtual clock"
        line_chart.draw(flags.programs, flags.svg, title, "bandwidth of each link (GB/s)", curves, logarithmic=True)


if __name__ == "__main__":
    main()
