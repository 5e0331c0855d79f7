"""What the parts of gpu_check.py have in common: the commands that they run, within the time that is left, and the page
that they write."""

import datetime
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

PROJECT = pathlib.Path(__file__).resolve().parent.parent
TIMED_OUT, NO_TIME_LEFT = 124, 125  # exit statuses, as `timeout` has them


def output_of(*command):
    """What a quick command prints, or nothing if it fails."""
    path = os.environ["PATH"] + ":/usr/local/cuda/bin"
    done = subprocess.run(["timeout", "20", *command], capture_output=True, text=True, env={**os.environ, "PATH": path})
    return done.stdout.strip() if done.returncode == 0 else ""


def found(pattern, text, default=""):
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else default


def usable_seconds(minutes):
    """Without the last few, which writing the page takes."""
    return 60 * minutes - 5


class Check:
    """The flags, what the parts found, and the page that they write."""

    def __init__(self, flags, gpu):
        self.binaries, self.data, self.python = flags.binaries, pathlib.Path(flags.data), flags.python
        self.minutes, self.sanitize = flags.minutes, flags.sanitize
        self.gpu_name, self.gpu_driver, self.gpu_capability = gpu.splitlines()[0].split(", ")
        self.page = pathlib.Path(flags.out)
        self.logs = self.page.with_suffix(".logs")
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.work = pathlib.Path(tempfile.mkdtemp())
        self.data_name = "CIFAR-10"
        self.start = self.part_start = time.monotonic()
        self.running = {}  # name: process, and the time at which it is killed
        self.summary, self.body, self.results = "", "", []
        if self.has_data():
            os.environ["STAGECOACH_CIFAR10"] = str(self.data)  # for the tests

    def has_data(self):
        return any(self.data.glob("data_batch_*.bin")) or (self.data / "cifar-10-batches-bin").is_dir()

    def program(self, name):
        """Its path, or None."""
        folders = (f"{self.binaries}/bin", str(self.binaries))
        return next((found for folder in folders if (found := shutil.which(f"{folder}/{name}"))), None)

    def lack(self, *programs):
        """What a part lacks of these programs, and of images to train on; nothing if all is there."""
        if missing := [name for name in programs if not self.program(name)]:
            return f"{', '.join(missing)} is missing"
        return "" if self.has_data() else f"no CIFAR-10 in {self.data}; give --data"

    def seconds_left(self):
        return usable_seconds(self.minutes) - (time.monotonic() - self.start)

    def begin(self):
        """The time from here on belongs to the next part."""
        self.part_start = time.monotonic()

    def note(self, part, result):
        """One line of the summary. Results that begin with FAILED or "not" decide the exit status."""
        self.results.append(result)
        self.summary += f"| {part} | {result} | {time.monotonic() - self.part_start:.0f} |\n"
        print(f"gpu_check: {part}: {result}", flush=True)

    def note_status(self, part, status, words):
        """The line for a command that `finish` waited for."""
        results = {0: f"passed: {words}", TIMED_OUT: f"not finished within its time limit: {words}",
                   NO_TIME_LEFT: f"not run: the {self.minutes:g} minutes were used up"}
        self.note(part, results.get(status, f"FAILED (exit {status}): {words}"))

    def write(self, text):
        self.body += text + "\n\n"

    def write_output(self, name, lines=15):
        """The first and the last lines of a command's output, without the tests that passed. The first failure is often
        the one that counts."""
        text = self.output(name) + (self.logs / f"{name}.err").read_text(errors="replace")
        shown = [line for line in text.splitlines() if not re.match(r"\[( RUN |       OK |-----)", line)]
        if len(shown) > 2 * lines:
            shown[lines:-lines] = ["…"]
        self.write("```text\n" + "\n".join(shown) + "\n```")

    def output(self, name):
        return (self.logs / f"{name}.out").read_text(errors="replace")

    def start_command(self, name, seconds, *command):
        """Runs it beside this script; its output goes to NAME.out and NAME.err in the logs."""
        limit = min(seconds, int(self.seconds_left()))
        with open(self.logs / f"{name}.out", "w") as out, open(self.logs / f"{name}.err", "w") as err:
            if limit > 5:
                process = subprocess.Popen(["timeout", "--kill-after=3", str(limit), *command],
                                           stdin=subprocess.DEVNULL, stdout=out, stderr=err)
                self.running[name] = process, time.monotonic() + limit

    def finish(self, name):
        """Waits for a command; returns its exit status as a shell would, TIMED_OUT or NO_TIME_LEFT."""
        if name not in self.running:
            return NO_TIME_LEFT
        process, kill_time = self.running[name]
        status = process.wait()
        del self.running[name]
        status = 128 - status if status < 0 else status
        # Killed before its time was over, it was out of memory.
        return TIMED_OUT if status == 137 and time.monotonic() >= kill_time else status

    def run(self, name, seconds, *command):
        self.start_command(name, seconds, *command)
        return self.finish(name)

    def write_page(self):
        """Whatever was reached."""
        toolkit = found(r"release ([0-9.]+),", output_of("nvcc", "--version"), "not found")
        driver_cuda = found(r"CUDA Version: *([0-9.]+)", output_of("nvidia-smi"), "unknown")
        commit = output_of("git", "-C", PROJECT, "rev-parse", "--short", "HEAD") or "unknown"
        if output_of("git", "-C", PROJECT, "status", "--porcelain", "--untracked-files=no"):
            commit += " with changes"
        self.page.write_text(
            f"# On a GPU\n\nMade by `scripts/gpu_check.py` on {datetime.date.today()}: {self.gpu_name}, compute "
            f"capability {self.gpu_capability}, driver {self.gpu_driver}; CUDA {driver_cuda} by the driver, nvcc "
            f"{toolkit}; commit {commit}.\n\n## What ran\n\n| part | result | seconds |\n|---|---|---:|\n{self.summary}\n"
            f"{self.body.rstrip()}\n"
        )
        shutil.rmtree(self.work)
        print(f"gpu_check: {self.page}; the output of all parts: {self.logs}")
