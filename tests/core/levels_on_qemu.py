#!/usr/bin/env python3
"""Runs chapter 1, built for several levels, on older processors that QEMU emulates.

    tests/core/levels_on_qemu.py --program build/levels/bin/ch01_single_device \\
        --make-data build/levels/bin/make_generated_data --levels x86-64 x86-64-v3 x86-64-v4

On each processor the run must choose the processor's level, name it, and train the bytes that the same level trains on
this machine. Exits with 1 if it does not, and with 77 where qemu-x86_64 is missing.

The C library's exp, log and pow have code for processors with and without FMA, which rounds differently, and chooses by
itself. So for a processor without FMA this machine is told to do without it too.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# QEMU's name, the highest level of the processor, and whether it has FMA.
PROCESSORS = (("qemu64", "x86-64", False), ("Nehalem", "x86-64-v2", False), ("Haswell", "x86-64-v3", True))
ORDER = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
WITHOUT_FMA = "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"


def train(command, folder, environment):
    """Trains for an epoch of two batches. Returns the level that the run names, and the bytes of the weights."""
    data = str(pathlib.Path(folder).parent / "data")
    run = subprocess.run([*command, "--data", data, "--epochs", "1", "--batch-size", "16", "--out", folder],
                         capture_output=True, text=True, check=False, env={**os.environ, **environment})  # fmt: skip
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {run.returncode}\n{run.stdout}{run.stderr}")
    named = re.search(r"^  cpu-level +(.*)$", run.stdout, re.MULTILINE)
    return named and named[1], (pathlib.Path(folder) / "weights.safetensors").read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--make-data", required=True, help="the program make_generated_data")
    parser.add_argument("--levels", nargs="+", required=True)
    arguments = parser.parse_args()
    qemu = shutil.which("qemu-x86_64")
    if qemu is None:
        print("skipped: there is no qemu-x86_64 here (scripts/setup.sh --for-ci installs it)")
        return 77

    faults, ran = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        # QEMU computes with floating-point numbers about a hundred times as slowly, so 32 images must do.
        subprocess.run([arguments.make_data, f"{scratch}/data", "--train", "32", "--test", "16"], check=True)
        for processor, highest, has_fma in PROCESSORS:
            possible = [level for level in arguments.levels if ORDER.index(level) <= ORDER.index(highest)]
            if not possible:
                print(f"{processor}: left out, as no level that it supports was built")
                continue
            libm = {} if has_fma else {"GLIBC_TUNABLES": WITHOUT_FMA}
            there, bytes_there = train([qemu, "-cpu", processor, arguments.program], f"{scratch}/{processor}", {})
            here, bytes_here = train([arguments.program], f"{scratch}/{processor}-here",
                                     {"STAGECOACH_LEVEL": possible[-1], **libm})  # fmt: skip
            ran += 1
            if (there, here) != (possible[-1], possible[-1]):
                faults.append(f"{processor}: expected level {possible[-1]}, got {there} there and {here} here")
            if bytes_there != bytes_here:
                faults.append(f"{processor}: the weights differ from those of {possible[-1]} on this machine")
            print(f"{processor}: {there}")
    print("\n".join(faults) or f"{ran} processors: each chose its level, with the bytes of the level on this machine")
    return 1 if faults or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
