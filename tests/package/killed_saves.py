#!/usr/bin/env python3
"""Kills a program of docs/examples that saves each step to one file, and continues it, several times.

    killed_saves.py PROGRAM RANKS RESUMED_RANKS

It must end with the bytes of an untouched one. Prints one line and returns 0 if so.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

KILLS = 4
FILE = "models.safetensors"


def kill_after_saves(saves, file, command):
    """Runs `command`, and kills it as soon as it has replaced `file` so many times."""
    written = file.stat().st_mtime_ns if file.exists() else 0
    with subprocess.Popen(command) as process:
        while saves > 0:
            assert process.poll() is None, f"{command} ended before it was killed"
            now = file.stat().st_mtime_ns if file.exists() else written
            saves -= now != written
            written = now
            time.sleep(0.0005)
        process.kill()
    assert process.returncode == -9, f"exit code {process.returncode}"


def main():
    program, ranks, resumed_ranks = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        untouched, killed = (pathlib.Path(scratch) / name for name in ("untouched", "killed"))
        subprocess.run([program, untouched, ranks], check=True)
        for kill in range(KILLS):
            resume = ["resume"] if kill > 0 else []
            kill_after_saves(5 + kill, killed / FILE, [program, killed, (ranks, resumed_ranks)[kill % 2], *resume])
        subprocess.run([program, killed, resumed_ranks, "resume"], check=True)
        same = (killed / FILE).read_bytes() == (untouched / FILE).read_bytes()
        assert same, "the program that was killed ended with other weights than the untouched one"
    print(f"killed {KILLS} times, resumed, and trained the same bytes")


if __name__ == "__main__":
    main()
