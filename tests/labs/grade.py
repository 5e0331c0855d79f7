#!/usr/bin/env python3
"""Grades the hand-ins of a class: scripts/lab.sh grade FOLDER…

A hand-in is a folder with the blanks of one or more labs, under the names that they have in chapters/NN_*/lab, in any
folder below it. Each is compiled with the flags of the build and linked with what is built already, in a sandbox
(bubblewrap): it sees the system's programs, the project without a way to write to it, and a scratch folder of its own; it
has no network, its own process numbers, and limits on time, memory, files and processes. As root, each hand-in also gets
a user id of its own. Then the grader runs, in a sandbox without the project.

Writes points.csv and one report per hand-in into the folder of --out. Points count only from lines that begin with a
random word, which the grader reads from standard input.
"""

import argparse
import csv
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BUILD = PROJECT / "build" / "release"
FIRST_USER = 61184  # as root: ids that no account has (those that systemd gives to services for a while)
MEBIBYTE = 1 << 20
LARGEST_SOURCE = MEBIBYTE
LARGEST_OUTPUT = MEBIBYTE  # of a report
COMPILE = {"seconds": 120, "cpu": 120, "processes": 32}
RUN = {"seconds": 500, "cpu": 200, "processes": 48}  # for the limits of each check see tests/labs/grading.h


class UsageError(Exception):
    pass


# What the build does with a blank.


@dataclass
class Lab:
    number: int
    blanks: dict = field(default_factory=dict)  # by file name: the path in the project, and the compiler's arguments
    link: list = field(default_factory=list)  # arguments of the linker, with OBJECTS and OUTPUT


def without_outputs(arguments):
    """The arguments of a compiler without "-o X" and "-c X"."""
    kept = []
    skip = False
    for argument in arguments:
        if not skip and argument not in ("-o", "-c"):
            kept.append(argument)
        skip = argument in ("-o", "-c")
    return kept


def link_command(number):
    """The command that links lab_N_solution, with OBJECTS for the solution and OUTPUT for the program."""
    target = f"lab_{number}_solution"
    commands = subprocess.run(["ninja", "-C", str(BUILD), "-t", "commands", target], capture_output=True, text=True, check=True)
    last = commands.stdout.splitlines()[-1]
    arguments = [word for word in shlex.split(last) if word not in (":", "&&")]
    objects = [word for word in arguments if f"{target}.dir/solutions/" in word]
    if not objects or f"bin/{target}" not in arguments:
        raise UsageError(f"the build has another form than expected: {last}")
    changed = ["OUTPUT" if word == f"bin/{target}" else word for word in arguments if word not in objects[1:]]
    changed[changed.index(objects[0])] = "OBJECTS"
    return changed


def read_labs():
    labs = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        match = re.fullmatch(r"chapters/0(\d)_\w+/lab/\w+\.cpp", os.path.relpath(path, PROJECT))
        if match:
            lab = labs.setdefault(int(match[1]), Lab(int(match[1])))
            arguments = shlex.split(entry["command"])
            start = next(i for i, word in enumerate(arguments) if re.search(r"(\+\+|cc|clang)[-.\d]*$", word) and "ccache" not in word)
            lab.blanks[path.name] = (path, without_outputs(arguments[start:]))
    for lab in labs.values():
        lab.link = link_command(lab.number)
    return dict(sorted(labs.items()))


# The sandbox.


def sandbox(scratch, writable, user, limits, folders=()):
    """The words before a command that runs in the sandbox. `folders` can be read; /scratch is `scratch`."""
    words = ["bwrap", "--die-with-parent", "--new-session", "--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
             "--unshare-cgroup-try", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/tmp",
             "--setenv", "LC_ALL", "C.UTF-8", "--ro-bind", "/usr", "/usr", "--perms", "0755", "--dir", "/etc",
             "--ro-bind-try", "/etc/alternatives", "/etc/alternatives", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for name in ("bin", "lib", "lib64"):
        path = Path("/") / name
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), str(path)]
        elif path.exists():
            words += ["--ro-bind", str(path), str(path)]
    words += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(512 * MEBIBYTE), "--tmpfs", "/tmp"]
    for folder in folders:
        for parent in reversed(folder.parents[:-1]):  # or bubblewrap makes them for its own user only
            words += ["--perms", "0755", "--dir", str(parent)]
        words += ["--ro-bind", str(folder), str(folder)]
    words += ["--bind" if writable else "--ro-bind", str(scratch), "/scratch", "--chdir", "/tmp"]
    if user is None:
        words += ["--unshare-user", "--"]
    else:  # a user id of its own, so that limits per user count for this hand-in alone
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--",
                  "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return words + ["prlimit", "--core=0", f"--nproc={limits['processes']}", f"--cpu={limits['cpu']}", f"--as={4096 * MEBIBYTE}",
                    f"--fsize={64 * MEBIBYTE}", "--nofile=256"]


@dataclass
class Ran:
    code: int  # the exit code; None if it did not end in time
    text: str


def run(words, seconds, given=""):
    """Runs a command of the sandbox; its output is cut off where it becomes too long."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as input_file:
        input_file.write(given.encode())
        input_file.seek(0)
        process = subprocess.Popen(words, stdin=input_file, stdout=output, stderr=subprocess.STDOUT, cwd="/")
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()  # and all in the sandbox with it
            process.wait()
            code = None
        output.seek(0)
        return Ran(code, output.read(LARGEST_OUTPUT).decode(errors="replace"))


def require_sandbox():
    """Returns what the sandbox cannot limit here, as a list of sentences."""
    if shutil.which("bwrap") is None:
        raise UsageError("the sandbox is missing: expected the program bwrap, got none; install it with scripts/setup.sh --for-labs")
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        user = FIRST_USER if os.geteuid() == 0 else None
        tried = run([*sandbox(scratch, False, user, RUN), "true"], 30)
    if tried.code != 0:
        raise UsageError("the sandbox does not start: expected a new user or mount namespace, got \""
                         f"{tried.text.strip()[:200]}\"; run as root, or allow unprivileged user namespaces")
    notes = ["Memory is limited for each process, not for all of a hand-in together."]
    release = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
    if user is None and release < (5, 14):
        notes.append("The limit on processes counts all of this user's processes, as the kernel is older than 5.14.")
    return notes


# One hand-in.


@dataclass
class Grade:
    points: int = 0
    of: int = 100
    remark: str = ""
    league: str = ""  # the idle share of lab 5's own schedule
    league_task: tuple = ()  # for (activations, ranks, micro-batches)
    report: str = ""


def find_blanks(folder, lab):
    """Returns the handed-in files by name, and a remark if one cannot be used."""
    found = {}
    for path in sorted(folder.rglob("*.cpp"), key=lambda path: (len(path.parts), str(path))):
        if path.name in lab.blanks and path.name not in found:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST_SOURCE:
                return found, f"{path.name} is not a file of at most {LARGEST_SOURCE // MEBIBYTE} MiB"
            found[path.name] = path
    return found, ""


def compile_blanks(lab, found, scratch, box):
    """Compiles and links in the sandbox. Returns the compiler's words if that fails."""
    objects = []
    for name, (path, arguments) in lab.blanks.items():
        shutil.copyfile(found.get(name, path), scratch / name)
        objects.append(f"/scratch/{name}.o")
        ran = run([*box, *arguments, "-o", objects[-1], "-c", f"/scratch/{name}"], COMPILE["seconds"])
        if ran.code != 0:
            return ran.text or "the compiler did not end in time"
    link = []
    for word in lab.link:
        link += objects if word == "OBJECTS" else ["/scratch/graded"] if word == "OUTPUT" else [word]
    ran = run([*box, "env", "-C", str(BUILD), *link], COMPILE["seconds"])
    return "" if ran.code == 0 else ran.text or "the linker did not end in time"


def read_points(ran, word):
    """Returns the grade that the lines which begin with `word` say."""
    grade = Grade(of=0)
    lines = [line.split("\t") for line in ran.text.splitlines() if line.startswith(word + "\t")]
    for line in lines:
        if line[1] == "note":
            if line[2].startswith("league: idle "):
                words = line[2].split()
                grade.league, grade.league_task = words[2].rstrip(","), tuple(int(words[at]) for at in (8, 11, 14))
        else:
            grade.points += int(line[1])
            grade.of += int(line[2])
    grade.report = "\n".join(line for line in ran.text.splitlines() if not line.startswith(word))
    if grade.of != 100:
        how = "did not end in time" if ran.code is None else f"ended with code {ran.code}"
        return Grade(remark=f"the program {how} before it was graded", report=grade.report)
    return grade


def grade_lab(lab, folder, user):
    """Returns the grade of one lab, or None if none of its blanks was handed in."""
    found, problem = find_blanks(folder, lab)
    if problem:
        return Grade(remark=problem)
    if not found:
        return None
    with tempfile.TemporaryDirectory(prefix="stagecoach-lab-") as name:
        scratch = Path(name)
        scratch.chmod(0o755)
        if user is not None:
            os.chown(scratch, user, user)
        problem = compile_blanks(lab, found, scratch, sandbox(scratch, True, user, COMPILE, [PROJECT]))
        if problem:
            return Grade(remark="does not compile", report="\n".join(problem.splitlines()[:60]))
        word = secrets.token_hex(16)
        box = sandbox(scratch, False, user, RUN)
        return read_points(run([*box, "/scratch/graded", "--signed"], RUN["seconds"], word + "\n"), word)


def names_of(folders):
    """A name for each hand-in: that of its folder, made unique."""
    names = []
    for folder in folders:
        name = base = re.sub(r"[^\w.-]", "_", folder.name)
        number = 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names.append(name)
    return names


def report_of(name, grades, notes):
    lines = [f"Hand-in {name}", ""]
    for number, grade in grades.items():
        lines.append(f"== Lab {number}: {grade.points} of {grade.of} points" + (f", {grade.remark}" if grade.remark else ""))
        lines += [grade.report, ""]
    if not grades:
        lines.append("There is no file with the name of a blank in it.")
    return "\n".join(lines + ["Limits: " + " ".join(notes), ""])


def main():
    parser = argparse.ArgumentParser(prog="scripts/lab.sh grade", description="Grades hand-ins.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a hand-in")
    parser.add_argument("--out", type=Path, default=PROJECT / "runs" / "grades", help="where points.csv and the reports go")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="hand-ins at a time")
    options = parser.parse_args()
    missing = [str(folder) for folder in options.folders if not folder.is_dir()]
    if missing:
        raise UsageError(f"not a folder: expected hand-ins, got {', '.join(missing)}; check the paths")
    labs = read_labs()
    notes = require_sandbox()
    names = names_of(options.folders)
    options.out.mkdir(parents=True, exist_ok=True)

    def grade(index):
        user = FIRST_USER + index if os.geteuid() == 0 else None
        grades = {number: grade_lab(lab, options.folders[index], user) for number, lab in labs.items()}
        grades = {number: result for number, result in grades.items() if result}
        (options.out / f"{names[index]}.txt").write_text(report_of(names[index], grades, notes))
        said = ", ".join(f"lab {number}: {result.points}" for number, result in grades.items()) or "nothing to grade"
        print(f"{names[index]}: {said}", flush=True)
        return grades

    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        results = list(pool.map(grade, range(len(names))))

    with open(options.out / "points.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["hand-in", *(f"lab_{number}" for number in labs), "lab5_league", "remarks"])
        for name, grades in zip(names, results):
            remarks = "; ".join(f"lab {number}: {result.remark}" for number, result in grades.items() if result.remark)
            points = [grades[number].points if number in grades else "" for number in labs]
            table.writerow([name, *points, grades[5].league if 5 in grades else "", remarks])
    print(f"{len(names)} hand-ins: {options.out / 'points.csv'}, and a report of each beside it")
    league = sorted((float(grades[5].league), name) for name, grades in zip(names, results) if 5 in grades and grades[5].league)
    for idle, name in league:
        place = 1 + sum(other < idle for other, _ in league)  # equal ones share a place
        print(f"league of lab 5, place {place}: {name}, idle {idle:.4f}")
    if league:
        activations, ranks, microbatches = next(grades[5].league_task for grades in results if 5 in grades and grades[5].league)
        shares = "+".join(f"{idle:g}" for idle, _ in league)
        print(f"the league in the playground: playground.html#schedule=zbv&ranks={ranks}&microbatches={microbatches}"
              f"&limit={activations / 2:g}&league={shares}")  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        print(f"grade: {error}", file=sys.stderr)
        sys.exit(2)
