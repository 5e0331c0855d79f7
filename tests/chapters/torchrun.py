#!/usr/bin/env python3
"""Chapters whose ranks PyTorch's torchrun starts, beside threads, and what the others do when one is killed.

    torchrun.py --programs build/release/bin [--torchrun torchrun]     Markdown, on standard output

Exit status: 0 all as promised, 1 not so, 2 no torchrun.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

FLAGS = "--optimizer adam --lr 0.003 --balance layers".split()
RUNS = (("ch02_naive_model_parallel", 2, ""), ("ch03_gpipe", 2, "--microbatches 4"), ("ch03_gpipe", 4, "--microbatches 4"),
        ("ch05_interleaved", 2, "--microbatches 4"))  # fmt: skip
RANK_FAILED = 4  # exit status of a program whose peer died


class Chapters:
    def __init__(self, programs, torchrun, folder):
        self.programs, self.torchrun, self.folder = programs, torchrun, folder
        subprocess.run([programs / "make_generated_data", folder / "data"], check=True, stdout=subprocess.DEVNULL)

    def command(self, program, *flags):
        return [self.programs / program, "--data", self.folder / "data", *flags]

    def by_torchrun(self, ranks, command):
        return [self.torchrun, "--no-python", "--nproc-per-node", str(ranks), *command]

    def digest(self, command):
        out = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        subprocess.run(list(map(str, [*command, "--out", out / "run"])), check=True, capture_output=True)
        return hashlib.sha256((out / "run/weights.safetensors").read_bytes()).hexdigest()

    def same_weights(self):
        print("| program | ranks | SHA-256 begins with | threads and torchrun |\n|---|---:|---|---|")
        all_same = True
        for program, ranks, more in RUNS:
            flags = [*FLAGS, "--epochs", "1", *more.split()]
            threads = self.digest(self.command(program, *flags, "--ranks", str(ranks)))
            same = threads == self.digest(self.by_torchrun(ranks, self.command(program, *flags)))
            all_same = all_same and same
            print(f"| `{f'{program} {more}'.strip()}` | {ranks} | {threads[:12]} | {'equal' if same else 'DIFFER'} |")
        return all_same

    def kill_one(self):
        """Kills the last of three ranks in training."""
        command = self.command("ch03_gpipe", *FLAGS, "--epochs", "1000", "--timeout", "5")
        run = subprocess.Popen(list(map(str, self.by_torchrun(3, command))), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)  # fmt: skip
        for line in run.stdout:
            if line.startswith("Epoch: 2,"):
                break
        children = subprocess.run(["pgrep", "-P", str(run.pid)], check=True, capture_output=True, text=True).stdout.split()
        os.kill(int(children[-1]), signal.SIGKILL)
        killed = time.monotonic()
        rest = run.stdout.read()
        run.wait()
        statuses = [line.split()[2] for line in rest.splitlines() if line.strip().startswith("exitcode")]
        print(f"\nOne of three ranks was killed: torchrun ended {time.monotonic() - killed:.1f} s later, and the ranks "
              f"with the statuses {', '.join(sorted(statuses))}.")  # fmt: skip
        return sorted(statuses) == sorted([str(RANK_FAILED), str(RANK_FAILED), "-9"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--torchrun", default="torchrun")
    flags = parser.parse_args()
    if not shutil.which(flags.torchrun):
        print(f"torchrun.py: there is no {flags.torchrun}; install PyTorch, or give --torchrun", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        chapters = Chapters(flags.programs, flags.torchrun, pathlib.Path(folder))
        same = chapters.same_weights()
        return 0 if chapters.kill_one() and same else 1


if __name__ == "__main__":
    sys.exit(main())
