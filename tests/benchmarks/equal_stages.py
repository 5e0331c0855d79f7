#!/usr/bin/env python3
"""Times the pipeline schedules where their formulas hold: on a vision transformer, whose blocks are equal.

    equal_stages.py [--rounds 3] [--clock virtual|wall] [--programs build/release/bin]

Trains on generated images. On the virtual clock four ranks take 8 micro-batches; on the wall clock two ranks, for two
cores, take 4. The runs alternate; what is shown are medians over the epochs except the first of all rounds. `predicted` is
what `simulate` says with the costs that the same epochs measured; `theory` is the speed-up over 1F1B if all stages and the
halves of a backward took equally long. Prints Markdown.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DEPTH, WIDTH, BATCH, IMAGES, EPOCHS = 16, 128, 128, 384, 3
# The name of a run: the chunks per rank, and its flags. Chunks are cut between blocks, see split().
SCHEDULES = {
    "naive": (1, ["--schedule", "naive"]),
    "gpipe": (1, ["--schedule", "gpipe"]),
    "1f1b": (1, ["--schedule", "1f1b"]),
    "interleaved, v = 2": (2, ["--schedule", "interleaved"]),
    "interleaved, v = 4": (4, ["--schedule", "interleaved"]),
    "foldx_aiao, v = 2": (2, ["--schedule", "foldx_aiao"]),
    "zb-h1": (1, ["--schedule", "zb-h1"]),
    "zbv": (2, ["--schedule", "zbv"]),
}
ON_TWO_CORES = ("1f1b", "interleaved, v = 2", "zb-h1")


def split(stages):
    """Equally many blocks per stage. The embedding is before them; the last norm, the mean and the head are after them."""
    layers = [DEPTH // stages] * stages
    layers[0] += 1
    layers[-1] += 3
    return ",".join(map(str, layers))


def train(programs, data, ranks, microbatches, name, *more):
    """The epochs of a run except the first."""
    chunks, flags = SCHEDULES[name]
    with tempfile.TemporaryDirectory() as out:
        command = [programs / "ch05_interleaved", "--data", data, "--model", "vit", "--depth", DEPTH, "--width", WIDTH, "--ranks", ranks,
                   "--batch-size", BATCH, "--microbatches", microbatches, "--chunks", chunks, "--split",
                   split(ranks * chunks), "--epochs", EPOCHS, "--out", out, *flags, *more]  # fmt: skip
        subprocess.run([*map(str, command)], check=True, capture_output=True)
        lines = (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


def table(runs):
    """Prints a row per run: the times of a step, beside 1F1B and beside their prediction."""
    steps = IMAGES / BATCH
    median = lambda name, key: statistics.median(epoch[key] for epoch in runs[name])
    base = "1f1b"
    print("| schedule | ms per step | over 1f1b | theory | predicted ms | measured / predicted | idle | ideal | peak MiB per rank |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---|")
    for name in runs:
        seconds, predicted = median(name, "seconds"), median(name, "predicted_seconds")
        theory = (1 - median(name, "ideal_idle")) / (1 - median(base, "ideal_idle"))
        peaks = " ".join(f"{peak / 2**20:.1f}" for peak in runs[name][-1]["peak_bytes"])
        print(f"| {name} | {1e3 * seconds / steps:.1f} | {median(base, 'seconds') / seconds:.3f} | {theory:.3f} "
              f"| {1e3 * predicted / steps:.1f} | {seconds / predicted:.3f} | {median(name, 'idle'):.1%} "
              f"| {median(name, 'ideal_idle'):.1%} | {peaks} |")  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", type=pathlib.Path, default=HERE.parents[1] / "build/release/bin")
    parser.add_argument("--clock", choices=("virtual", "wall"), help="this one only")
    flags = parser.parse_args()
    virtual = {name: [] for name in SCHEDULES if flags.clock != "wall"}
    wall = {name: [] for name in ON_TWO_CORES if flags.clock != "virtual"}
    with tempfile.TemporaryDirectory() as data:
        make = [flags.programs / "make_generated_data", "--train", IMAGES, "--test", 64, data]
        subprocess.run([*map(str, make)], check=True, capture_output=True)
        for _ in range(flags.rounds):
            for name, epochs in virtual.items():
                epochs += train(flags.programs, data, 4, 8, name, "--clock", "virtual")
            for name, epochs in wall.items():
                epochs += train(flags.programs, data, 2, 4, name)
    what = f"`vit` with {DEPTH} blocks {WIDTH} wide, batch {BATCH}, medians of {flags.rounds} rounds in turn"
    if virtual:
        print(f"Four ranks, 8 micro-batches, virtual clock: {what}.\n")
        table(virtual)
    if wall:
        print(f"\nTwo ranks on two cores, 4 micro-batches, wall clock: {what}.\n")
        table(wall)


if __name__ == "__main__":
    main()
