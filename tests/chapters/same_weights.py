#!/usr/bin/env python3
"""Trains with the programs of two builds, and compares what they learned: a refactoring proves itself by it.

    tests/chapters/same_weights.py OLD/build/release/bin build/release/bin [--filter TEXT]

Each run below trains in both builds on the same generated images; the SHA-256 of weights.safetensors and every loss
and accuracy of metrics.jsonl must be equal. For GPU kernels without a GPU give the folders of the preset emulated and
`--device cuda`: the runs marked "cuda" then train on emulated devices. Exit code: 0 if all are equal, 1 if not.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

VIT = "--model vit --depth 3 --width 16 --heads 2"
# Delays, and so weights, of PipeDream depend on the stages: these runs do not balance them by measured times.
# name, program, flags; "mpi N" before the program: that many processes; "cuda": also with --device cuda.
RUNS = [
    ("one device: convnet cuda", "ch01_single_device", "--model convnet"),
    ("one device: resnet18", "ch01_single_device", "--model resnet18"),
    ("one device: vit, adam cuda", "ch01_single_device", f"{VIT} --optimizer adam --lr 0.001"),
    ("one device: mlp, 4 micro-batches", "ch01_single_device", "--model mlp --microbatches 4"),
    ("naive: 3 ranks", "ch02_naive_model_parallel", "--model convnet --ranks 3"),
    ("gpipe: by hand", "ch03_gpipe", "--schedule by-hand --ranks 3 --microbatches 4"),
    ("gpipe: table cuda", "ch03_gpipe", "--ranks 2 --microbatches 4 --model convnet"),
    ("gpipe: processes", "mpi 3 ch03_gpipe", "--microbatches 4"),
    ("gpipe: recompute, resnet18", "ch03_gpipe", "--model resnet18 --recompute --ranks 2"),
    ("pipedream: stash cuda", "ch04_pipedream", "--ranks 3 --balance layers"),
    ("pipedream: vertical", "ch04_pipedream", "--versions vertical --ranks 3 --balance layers"),
    ("pipedream: 2bw", "ch04_pipedream", "--versions 2bw --balance layers --ranks 3 --microbatches 4"),
    ("pipedream: 1F1B by hand", "ch04_pipedream", "--versions flush --schedule by-hand --ranks 3 --microbatches 4"),
    ("pipedream: replicas, processes", "mpi 3 ch04_pipedream", "--replicas 2,1 --balance layers"),
    ("interleaved cuda", "ch05_interleaved", f"--schedule interleaved --chunks 2 --ranks 2 --microbatches 4 {VIT}"),
    ("zero bubble", "ch05_interleaved", "--schedule zb-h1 --ranks 3 --microbatches 6"),
    ("zero bubble in a V", "ch05_interleaved", f"--schedule zbv --ranks 2 --microbatches 4 {VIT}"),
    ("data parallel: buckets cuda", "ch06_ddp", "--ranks 2"),
    ("data parallel: single", "ch06_ddp", "--mode single --ranks 3"),
    ("data parallel: central", "ch06_ddp", "--mode central --ranks 3"),
    ("data parallel: half, processes", "mpi 2 ch06_ddp", "--compress half"),
    ("data parallel: of pipelines", "ch06_ddp", "--mesh dp=2,pp=2 --microbatches 4"),
    ("one controller cuda", "ch07_one_controller", "--ranks 2"),
    ("one controller: remote", "ch07_one_controller", "--form remote --ranks 3 --splits 2"),
    ("tensor parallel", "ch08_tensor_parallel", f"--mesh tp=2 {VIT}"),
    ("tensor parallel: three directions", "ch08_tensor_parallel", f"--mesh dp=2,pp=2,tp=2 --microbatches 2 {VIT}"),
    ("sharded", "ch09_sharded_data_parallel", f"--ranks 3 --optimizer adam --lr 0.001 {VIT}"),
    ("sharded: two copies, processes", "mpi 4 ch09_sharded_data_parallel", "--mesh dp=2,shard=2 --shard optimizer"),
]
MPIRUN = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n"]


def train(folder, program, flags, out):
    """Returns the digest of the weights, and the losses and accuracies of all epochs."""
    words = program.split()
    command = [*MPIRUN, words[1]] if words[0] == "mpi" else []
    command += [os.path.join(folder, words[-1]), *flags.split(), "--out", str(out)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    weights = sorted(out.rglob("weights*.safetensors"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in weights)).hexdigest()
    learned = []
    for line in (out / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        learned.append([entry.get(key) for key in ("epoch", "loss", "acc", "test_acc")])
    return digest, learned


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--filter", default="", help="only runs whose name contains this")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = parser.parse_args()
    images = tempfile.TemporaryDirectory()
    subprocess.run([os.path.join(options.old, "make_generated_data"), images.name, "--train", "96", "--test", "32"],
                   check=True, capture_output=True)
    small = f"--data {images.name} --epochs 2 --batch-size 24"
    differences = 0
    ran = 0
    for name, program, flags in RUNS:
        if options.filter not in name or (options.device == "cuda" and "cuda" not in name):
            continue
        if program.startswith("mpi") and not shutil.which("mpirun"):
            print(f"left out, as there is no mpirun: {name}")
            continue
        device = " --device cuda" if options.device == "cuda" else ""
        with tempfile.TemporaryDirectory() as scratch:
            old, new = (train(folder, program, f"{flags} {small}{device}", pathlib.Path(scratch) / side)
                        for folder, side in ((options.old, "old"), (options.new, "new")))
        ran += 1
        differences += old != new
        print(f"{'equal' if old == new else 'DIFFERENT'}  {new[0][:16]}  {name}" +
              ("" if old == new else f"\n  old {old}\n  new {new}"), flush=True)
    print(f"{ran} runs, {differences} differ")
    sys.exit(1 if differences or not ran else 0)


if __name__ == "__main__":
    main()
