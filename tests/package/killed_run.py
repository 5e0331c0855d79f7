#!/usr/bin/env python3
"""Kills a program of docs/examples in the middle of its training, and continues it.

    killed_run.py PROGRAM                        train_your_own
    killed_run.py PROGRAM RANKS RESUMED_RANKS    the others

The resumed run must end with the bytes of an untouched one, and on a terminal a run must show a progress bar. Prints one
line and returns 0 if so.
"""

import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import time


def shown_on_terminal(command):
    """Runs `command` with standard error on a terminal, and returns what it showed there."""
    terminal, program_side = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=program_side) as process:
        os.close(program_side)
        shown = b""
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # the program has ended
                break
            if not part:
                break
            shown += part
    os.close(terminal)
    assert process.returncode == 0, f"exit code {process.returncode}: {shown.decode()}"
    return shown.decode()


def kill_after(checkpoint, command):
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while not checkpoint.exists():
            assert process.poll() is None, f"the training ended before it wrote {checkpoint}"
            time.sleep(0.001)
        process.kill()
    assert process.returncode == -9, f"exit code {process.returncode}"


def main():
    program = sys.argv[1]
    ranks, resumed_ranks = ([argument] for argument in sys.argv[2:4]) if len(sys.argv) > 2 else ([], [])
    with tempfile.TemporaryDirectory() as scratch:
        untouched, killed = (pathlib.Path(scratch) / name for name in ("untouched", "killed"))
        shown = shown_on_terminal([program, untouched, *ranks])
        assert re.search(r"Epoch 20 \[===.* step (\d+)/\1\b", shown), f"no progress bar: {shown[-500:]}"
        kill_after(killed / "checkpoints/epoch-4-step-0/manifest.safetensors", [program, killed, *ranks])
        continued = [program, killed, *resumed_ranks, "resume"]
        resumed = subprocess.run(continued, check=True, capture_output=True, text=True).stdout
        assert "Continues in epoch" in resumed and "Epoch: 20, " in resumed, resumed
        weights, expected = ((run / "weights.safetensors").read_bytes() for run in (killed, untouched))
        assert weights == expected, "the resumed run has other weights than the untouched one"
        epochs = len((killed / "metrics.jsonl").read_text().splitlines())
        assert epochs == 20, f"{epochs} lines of metrics"
    print("killed, resumed, and trained the same bytes")


if __name__ == "__main__":
    main()
