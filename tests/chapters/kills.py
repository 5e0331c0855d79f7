#!/usr/bin/env python3
"""Ends runs of chapters 1 to 9 at random moments, goes on with them, and compares what they have trained with the bytes
of a run that nobody touched.

    tests/chapters/kills.py --bin build/release/bin [--count 200] [--seed N] [--mpirun PATH] [--chapter N]

KILL, TERM, INT and STOP are sent to a program, or to one of the processes that mpirun has started; XFSZ is a limit on
the size of files that one of them gets from then on, so that its next save fails. A run that was ended goes on with
--resume, and may be ended again; one that reaches its end must have the weights and losses of the untouched run. Only
runs that were still going when they were hit count. Prints a table and exits with 1 if anything was wrong.

Chapter 4 saves within an epoch only what `--versions flush` can go on with exactly (docs/promises.md), so its other
versions are not asked to save by TERM or INT.
"""

import argparse
import collections
import hashlib
import itertools
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

EPOCHS = 6
TIMEOUT = 5  # seconds that a rank waits for another, also when its process starts on a busy machine
HANG = 400  # seconds after which a run counts as hanging: a busy machine is no hang; no run takes a thirtieth of it
SIGNALS = ("KILL", "TERM", "INT", "STOP", "XFSZ")
ASK_TO_SAVE = ("TERM", "INT")

Case = collections.namedtuple("Case", "chapter program ranks flags signals processes", defaults=(SIGNALS, True))

CASES = (
    Case(1, "ch01_single_device", 1, ["--microbatches", "2", "--augment"]),
    Case(1, "ch01_single_device", 1, ["--optimizer", "adam", "--threads", "2"]),
    Case(2, "ch02_naive_model_parallel", 2, ["--split", "6,6"]),
    Case(3, "ch03_gpipe", 3, ["--split", "3,3,6", "--microbatches", "2"]),
    Case(4, "ch04_pipedream", 2, ["--split", "6,6", "--microbatches", "2", "--versions", "flush"]),
    Case(4, "ch04_pipedream", 2, ["--split", "6,6"], ("KILL", "STOP", "XFSZ")),
    Case(5, "ch05_interleaved", 2, ["--split", "3,3,3,3", "--microbatches", "4", "--optimizer", "adam"]),
    Case(6, "ch06_ddp", 2, ["--bucket-size", "64KiB", "--compress", "half"]),
    Case(6, "ch06_ddp", 3, ["--mode", "central", "--batch-size", "48"]),
    Case(8, "ch08_tensor_parallel", 4, ["--mesh", "pp=2,tp=2", "--microbatches", "2"]),
    Case(9, "ch09_sharded_data_parallel", 3, ["--optimizer", "adam", "--batch-size", "48"]),
    Case(9, "ch09_sharded_data_parallel", 4, ["--mesh", "dp=2,shard=2", "--shard", "gradients", "--clip-norm", "0.5"]),
    Case(7, "ch07_one_controller", 4, ["--microbatches", "4"], processes=False),
    Case(7, "ch07_one_controller", 2, ["--form", "naive", "--split", "6,6", "--optimizer", "adam"], processes=False),
)

# A shell beside each process notes its number and how it has ended. It outlives the process's end by mpirun.
NOTE = (
    "trap '' TERM USR1; \"$@\" & p=$!; echo $p > pid.$p; mv pid.$p pid_$OMPI_COMM_WORLD_RANK; wait $p; c=$?; "
    "echo $c > code_$OMPI_COMM_WORLD_RANK; exit $c"
)


class Wrong(Exception):
    """Something that a run must not do."""


def is_alive(pid):
    """Whether a process runs; one that has ended and that nobody has asked about does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


class Running:
    """A program that was started: one process, or several by mpirun."""

    def __init__(self, track, flags):
        self.folder = track.folder
        self.ranks = track.case.ranks if track.mpirun else 0  # those that are processes
        for old in itertools.chain(self.folder.glob("pid*"), self.folder.glob("code_*")):
            old.unlink()
        command = [str(track.program), *flags]
        if track.mpirun:
            command = [track.mpirun, "-np", str(self.ranks), "/bin/sh", "-c", NOTE, "sh", *command]
        # Pipes, as a limit on files is none on them.
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=self.folder, start_new_session=True, **pipes)
        self.texts = {}
        self.readers = [threading.Thread(target=self.read, args=(name,)) for name in ("stdout", "stderr")]
        for reader in self.readers:
            reader.start()

    def read(self, name):
        with getattr(self.process, name) as pipe:
            self.texts[name] = pipe.read().decode(errors="replace")

    def pid(self, rank):
        """The number of a rank's process, or None when the run ended before there was one."""
        if not self.ranks:
            return self.process.pid
        note = self.folder / f"pid_{rank}"
        while not note.exists():
            if self.process.poll() is not None:
                return None
            time.sleep(0.001)
        return int(note.read_text())

    def code(self, rank):
        """How a rank's process has ended, or None."""
        note = self.folder / f"code_{rank}"
        return int(note.read_text() or -1) if note.exists() else None

    def is_over(self):
        return self.process.poll() is not None

    def living(self):
        """The processes of ranks that have not ended."""
        notes = (self.folder / f"pid_{rank}" for rank in range(self.ranks))
        return [int(note.read_text()) for note in notes if note.exists() and is_alive(int(note.read_text()))]

    def wait_for_others(self, pid):
        """Returns when no rank but that of process `pid` is left."""
        for rank in range(self.ranks):
            self.pid(rank)  # all have begun
        end = time.monotonic() + HANG
        while not self.is_over() and set(self.living()) - {pid}:
            if time.monotonic() > end:
                self.kill()
                raise Wrong("ranks wait for one that stands still")
            time.sleep(0.002)

    def kill(self):
        for pid in (self.process.pid, *self.living()):
            kill_if_alive(pid)

    def wait(self):
        """Waits for the end of all processes. Returns the exit code.

        Open MPI's mpirun itself sometimes stands still when all that it has started have ended: then it is killed."""
        began = last_seen = time.monotonic()
        while not self.is_over() or self.living():
            now = time.monotonic()
            if not self.ranks or self.living():
                last_seen = now
            if now - last_seen > 15 or now - began > HANG:
                self.kill()
            if now - began > HANG:
                self.process.wait()
                raise Wrong(f"a hang: {' '.join(map(str, self.process.args))}")
            time.sleep(0.002)
        for reader in self.readers:
            reader.join()
        return self.process.returncode

    def text(self):
        """The end of what it has printed."""
        return "".join(text[-2000:] for text in self.texts.values())

    def errors(self):
        return self.texts["stderr"]


class Track:
    """A case in one form, as threads or as processes: its data, its untouched run, and the run that is being hit."""

    def __init__(self, case, bin_folder, data, folder, mpirun):
        self.case = case
        self.program = bin_folder / case.program
        self.mpirun = mpirun
        self.folder = folder
        self.data = data
        began = time.monotonic()
        running = Running(self, self.begin("whole"))
        code = running.wait()
        self.seconds = time.monotonic() - began
        if code != 0:
            raise Wrong(f"{self}: the untouched run ended with {code}: {running.texts.get('stderr', '')}")
        self.whole = self.trained("whole")

    def __str__(self):
        form = f"{self.case.ranks} processes" if self.mpirun else f"{self.case.ranks} threads"
        return f"chapter {self.case.chapter}, {form} ({' '.join(self.case.flags)})"

    def begin(self, out):
        ranks = [] if self.mpirun or self.case.chapter == 1 else ["--ranks", str(self.case.ranks)]
        timeout = ["--timeout", str(TIMEOUT)] if self.case.processes and self.case.chapter > 1 else []
        batch = [] if "--batch-size" in self.case.flags else ["--batch-size", "32"]
        return ["--data", str(self.data), "--epochs", str(EPOCHS), "--out", out, *batch, *ranks, *timeout, *self.case.flags]

    def trained(self, out):
        """What training leaves: the hash of the weights, and what each epoch has learned."""
        weights = hashlib.sha256((self.folder / out / "weights.safetensors").read_bytes()).hexdigest()
        lines = (self.folder / out / "metrics.jsonl").read_text().splitlines()
        return weights, [[json.loads(line)[key] for key in ("epoch", "loss", "acc", "test_acc")] for line in lines]

    def go_on(self):
        """Starts the run, from its last checkpoint if one is whole: without its manifest, written last, it is none."""
        if any(self.folder.glob("run/checkpoints/*/manifest.safetensors")):
            return Running(self, ["--resume", "run"])
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        return Running(self, self.begin("run"))

    def compare_if_done(self, running, code):
        """Whether the run has reached its end; then it must have trained the bytes of the untouched one."""
        if code != 0 and f"the run is done after {EPOCHS} epochs" not in running.errors():
            return False
        if self.trained("run") != self.whole:
            keep = tempfile.mkdtemp(prefix="kills-wrong-")
            shutil.copytree(self.folder, keep, dirs_exist_ok=True)
            raise Wrong(f"{self}: other bytes than those of the untouched run; see {keep}")
        shutil.rmtree(self.folder / "run")
        return True

    def hit(self, name, rng):
        """Ends the run at a random moment. Returns whether it was still going."""
        running = self.go_on()
        moment = time.monotonic() + rng.uniform(0, self.seconds)
        rank = rng.randrange(self.case.ranks) if self.mpirun and name not in ASK_TO_SAVE else 0
        pid = running.pid(rank)
        while time.monotonic() < moment and not running.is_over():
            time.sleep(0.001)
        was_going = pid is not None and not running.is_over() and is_alive(pid)
        if was_going:
            HITS[name](running, pid, rng)
        code = running.wait()
        is_done = self.compare_if_done(running, code)
        if was_going and not is_done:
            self.expect_end(name, running, rank, code)
        return was_going

    def expect_end(self, name, running, rank, code):
        """How a run may end that was hit: the rank as its signal says, the others in good order."""
        number = getattr(signal, f"SIG{name}").value
        own = {"KILL": {-9}, "TERM": {130, -15}, "INT": {130, -2}, "STOP": {-9, 4} if running.ranks else {-9}, "XFSZ": {3}}[name]
        codes = [running.code(r) for r in range(running.ranks)] if running.ranks else [code]
        for r, each in enumerate(codes):
            # Of processes mpirun ends the others: at once with TERM, then with KILL; and None may be left of them.
            allowed = own if not running.ranks else own | {None, 3, 4, 130, 128 + number, 137, 143}
            if each not in allowed and not (each == 0 and running.ranks):
                raise Wrong(f"{self}: rank {r} ended with {each} after {name} to rank {rank}: {running.text()}")
        others = [each for r, each in enumerate(codes) if r != rank]
        if name == "STOP" and running.ranks and not any(each in (0, 4) for each in others):
            raise Wrong(f"{self}: no rank gave up on rank {rank}, which stood still ({codes}): {running.text()}")
        # Before MPI has started, the limit is on the memory that it shares, which are files.
        reasons = ("File too large", "MPI_Init_thread: no answer")
        if name == "XFSZ" and not any(reason in running.errors() for reason in reasons):
            raise Wrong(f"{self}: no word of the limit on files: {running.text()}")

    def finish(self):
        """Goes on to the end, and compares."""
        running = self.go_on()
        code = running.wait()
        if not self.compare_if_done(running, code):
            raise Wrong(f"{self}: the last start ended with {code}: {running.text()}")


def send(name):
    return lambda running, pid, rng: os.kill(pid, getattr(signal, f"SIG{name}"))


def stop(running, pid, rng):
    """A process stands still: the others must give up by themselves. A program of threads goes on, also when it stood
    still for longer than its ranks wait for each other, or is killed."""
    os.kill(pid, signal.SIGSTOP)
    if running.ranks:
        running.wait_for_others(pid)
        kill_if_alive(pid)  # where the others were done, nobody is left who would end it
    else:
        time.sleep(rng.choice((0.05, 0.3, TIMEOUT + 1)))
        os.kill(pid, rng.choice((signal.SIGCONT, signal.SIGKILL)))


def kill_if_alive(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def limit_files(running, pid, rng):
    limit = rng.choice((0, 500, 4096, 20_000, 100_000))
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, limit))
    except ProcessLookupError:
        pass  # it has ended just now


HITS = {"KILL": send("KILL"), "TERM": send("TERM"), "INT": send("INT"), "STOP": stop, "XFSZ": limit_files}


def prepare_mpi(folder):
    """As root and with more processes than cores; with a folder of our own for the memory that processes share."""
    shared = tempfile.mkdtemp(prefix="kills-", dir="/dev/shm" if os.path.isdir("/dev/shm") else folder)
    os.environ.update(
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMPI_MCA_rmaps_base_oversubscribe="1",
        OMPI_MCA_btl_vader_backing_directory=shared,
    )
    return pathlib.Path(shared)


def hit_all(forms, open_track, arguments, rng, counts):
    """Hits until `count` runs were still going, then lets all reach their ends. Each signal and each form (a case, and
    mpirun or None) gets its turn, in random order."""
    turns = [(form, name) for form in forms for name in form[0].signals]
    waiting = []
    tracks = {}
    hits = 0
    while hits < arguments.count:
        if not waiting:
            waiting = rng.sample(turns, len(turns))
        form, name = waiting.pop()
        key = repr(form)
        if key not in tracks:
            tracks[key] = open_track(*form)
        if tracks[key].hit(name, rng):
            hits += 1
            counts[form[0].chapter, "processes" if form[1] else "threads", name] += 1
            print(f"{hits:4} {name:4} {tracks[key]}", flush=True)
        else:
            waiting.insert(0, (form, name))  # it had ended before: again, later
    for track in tracks.values():
        track.finish()


def print_table(counts):
    print(f"{'':21}" + "".join(f"{name:>6}" for name in SIGNALS) + "   all")
    rows = sorted({key[:2] for key in counts})
    for chapter, form in rows:
        numbers = [counts[chapter, form, name] for name in SIGNALS]
        print(f"chapter {chapter}, {form:10}" + "".join(f"{number:6}" for number in (*numbers, sum(numbers))))
    sums = [sum(count for key, count in counts.items() if key[2] == name) for name in SIGNALS]
    print(f"{'all':21}" + "".join(f"{number:6}" for number in (*sums, sum(sums))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the programs")
    parser.add_argument("--count", type=int, default=200, help="how many runs to end (200)")
    parser.add_argument("--seed", type=int, default=0, help="other seeds choose other moments (0)")
    parser.add_argument("--mpirun", help="also as processes of this program of Open MPI")
    parser.add_argument("--chapter", type=int, choices=range(1, 10), help="only runs of this one")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    counts = collections.Counter()
    shared = None
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = pathlib.Path(name)
        try:
            data = folder / "data"
            make = arguments.bin.resolve() / "make_generated_data"
            subprocess.run([make, data, "--train", "480", "--test", "64"], check=True, stdout=subprocess.DEVNULL)
            shared = prepare_mpi(folder) if arguments.mpirun else None
            forms = [
                (case, mpirun)
                for case in CASES
                for mpirun in dict.fromkeys((None, arguments.mpirun if case.ranks > 1 and case.processes else None))
                if arguments.chapter in (None, case.chapter)
            ]

            def open_track(case, mpirun):
                return Track(case, arguments.bin.resolve(), data, pathlib.Path(tempfile.mkdtemp(dir=folder)), mpirun)

            hit_all(forms, open_track, arguments, rng, counts)
            if shared and any(shared.iterdir()):
                raise Wrong(f"shared memory stayed behind: {[path.name for path in shared.iterdir()]}")
        except Wrong as wrong:
            print(f"kills.py: {wrong}", file=sys.stderr)
            return 1
        finally:
            if shared:
                shutil.rmtree(shared, ignore_errors=True)
            print_table(counts)
    print(f"All of {sum(counts.values())} runs that were ended went on to the bytes of an untouched run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
