#!/usr/bin/env python3
"""Tests tests/labs/grade.py with hand-ins that are right, wrong, broken or hostile.

  grade_test.py            a few of them
  grade_test.py --all      all thirty: minutes

Each gets the points that it should get, and nothing outside the sandbox changes: not the project, not the hand-ins, not
the folder for temporary files.
"""

import argparse
import csv
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
SOLUTIONS = {number: (HERE / "solutions" / f"lab{number}.cpp").read_text() for number in (1, 2, 3)}
# A blank with the whole solution, and the one that then stays empty.
BLANKS = {1: ("scaled_tanh.cpp", "accumulate.cpp"), 2: ("shift.cpp", "batch_step.cpp"), 3: ("descending_gpipe.cpp", "run_table.cpp")}
MAKE = "Schedule descending_gpipe(const std::vector<int>& stage_to_rank, int microbatches) {"


def changed(number, old, new):
    """The solution of a lab with one change."""
    assert SOLUTIONS[number].count(old) >= 1, old
    return {number: SOLUTIONS[number].replace(old, new, 1)}


def doing(statements, includes=""):
    """The solution of lab 3, whose generator first does something else."""
    text = SOLUTIONS[3].replace(MAKE, MAKE + "\n" + statements, 1)
    return {3: "\n".join(f"#include <{name}>" for name in includes.split()) + "\n" + text}


GENERATOR = 50  # the points of lab 3 that need the generator
# A condition that holds in one criterion of lab 3 only, which has 10 points.
SEVERAL_STAGES = "if (stage_to_rank.back() + 1 != static_cast<int>(stage_to_rank.size())) "
# name: (text of the whole solution by lab, points by lab)
HAND_INS = {
    "solutions": (dict(SOLUTIONS), {1: 100, 2: 100, 3: 100}),
    "does_not_compile": ({3: "this is no C++"}, {3: 0}),
    "endless_loop": (doing(SEVERAL_STAGES + "for (volatile bool on = true; on;) {}"), {3: 90}),
    "fork_bomb": (doing(SEVERAL_STAGES + "for (;;) { fork(); }", "unistd.h"), {3: 90}),
    "allocates_10_gb": (doing("std::vector<char> large(10'000'000'000, 1); if (large[5] == 2) { return {}; }"), {3: 100 - GENERATOR}),
    "prints_points": (
        doing('std::puts("lab 3: 100 of 100 points"); std::fflush(stdout); std::exit(0);', "cstdio cstdlib"), {3: 100 - GENERATOR}),
    "prints_points_before_main": (
        {3: '#include <cstdio>\n#include <cstdlib>\nstatic const int early = [] { std::puts("x\\t100\\t100\\tall\\n'
            'lab 3: 100 of 100 points"); std::exit(0); return 0; }();\n' + SOLUTIONS[3]}, {3: 0}),
    "deletes_its_folder": (
        doing('std::error_code error; for (const char* folder : {".", "/scratch", "/tmp", "HERE", "PROJECT"}) '
              "std::filesystem::remove_all(folder, error);", "filesystem"), {3: 100}),
    # From here on with --all only.
    "solution_of_lab_1": ({1: SOLUTIONS[1]}, {1: 100}),
    "solution_of_lab_2": ({2: SOLUTIONS[2]}, {2: 100}),
    "nothing": ({}, {}),
    "wrong_slope": (changed(1, "(1 - t * t)", "(1 - t)"), {1: 85}),
    "mean_over_rows": (changed(1, "grad.data<double>()[i] * t;", "grad.data<double>()[i] * t / static_cast<double>(rows);"), {1: 85}),
    "sum_of_losses": (changed(1, "1.0 / static_cast<double>(count), loss", "1.0, loss"), {1: 70}),
    "all_send_first": (changed(2, "comm.rank() < std::gcd(p, by)", "comm.rank() < 0"), {2: 60}),
    "rank_zero_first": (changed(2, "comm.rank() < std::gcd(p, by)", "comm.rank() == 0"), {2: 75}),
    "sum_not_mean": (changed(2, "1.0 / static_cast<double>(shape(0)[0])", "1.0"), {2: 40}),
    "ascending_backwards": (
        changed(3, "int i = microbatches - 1; i >= 0; --i", "int i = 0; i < microbatches; ++i"), {3: 80}),
    "order_of_the_table": (changed(3, "gradient_order(actions, number)", "std::vector<int>{}"), {3: 90}),
    "sends_wait": (changed(3, "sends_.push_back(step_.comm.send_async(tensor, step_.schedule.rank_of(to, microbatch), name));",
                           "step_.comm.send(tensor, step_.schedule.rank_of(to, microbatch), name);"), {3: 85}),
    "crashes": (doing("volatile int* nowhere = nullptr; *nowhere = 1;"), {3: 100 - GENERATOR}),
    "aborts": (doing("std::abort();", "cstdlib"), {3: 100 - GENERATOR}),
    "throws_an_int": (doing("throw 5;"), {3: 100 - GENERATOR}),
    "sleeps": (doing(SEVERAL_STAGES + "sleep(100000);", "unistd.h"), {3: 90}),
    "ends_with_success": (doing("_exit(0);", "unistd.h"), {3: 100 - GENERATOR}),
    "kills_its_grader": (doing("kill(getppid(), SIGKILL); kill(-1, SIGKILL);", "csignal unistd.h"), {3: 0}),
    "leaves_processes": (
        doing("if (fork() == 0) { setsid(); if (fork() == 0) { sleep(100000); } _exit(0); }", "unistd.h"), {3: 100}),
    "fills_the_disk": (
        doing('for (int i = 0; i < 50; ++i) { std::ofstream out("/tmp/" + std::to_string(i)); std::string part(1 << 20, 0); '
              "for (int j = 0; j < 60 && out; ++j) { out << part; } }", "fstream string csignal"), {3: 100}),
    "calls_the_network": (
        doing("const int s = socket(AF_INET, SOCK_STREAM, 0); sockaddr_in a{}; a.sin_family = AF_INET; a.sin_port = htons(80);"
              " a.sin_addr.s_addr = htonl(0x01010101); if (connect(s, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0) { return {}; }",
              "sys/socket.h netinet/in.h"), {3: 100}),
    "includes_endlessly": ({3: '#include "/dev/zero"\n'}, {3: 0}),
}
FEW = 8
assert len(HAND_INS) == 30


def has_sandbox():
    words = ["bwrap", "--ro-bind", "/", "/", "--unshare-net", "--unshare-pid", "true"]
    return shutil.which("bwrap") is not None and subprocess.run(words, capture_output=True).returncode == 0


def fingerprint(folder, without=()):
    """The contents, sizes and rights of all files of a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if not any(part in without for part in relative.parts):
            digest.update(f"{relative} {path.lstat().st_mode}".encode())
            if path.is_file():
                digest.update(path.read_bytes())
    return digest.hexdigest()


def write_hand_ins(names, folder):
    for name in names:
        (folder / name).mkdir()
        for number, text in HAND_INS[name][0].items():
            full, empty = BLANKS[number]
            text = text.replace('"HERE"', f'"{folder / name}"').replace('"PROJECT"', f'"{PROJECT}"')
            (folder / name / full).write_text(text)
            (folder / name / empty).write_text("// in the other file\n")


class Grade(unittest.TestCase):
    names = list(HAND_INS)[:FEW]

    def test_points_and_what_is_left_alone(self):
        with tempfile.TemporaryDirectory() as temporary:
            hand_ins, out, others = (Path(temporary) / name for name in ("hand-ins", "out", "others"))
            for folder in (hand_ins, out, others):
                folder.mkdir()
            (others / "file").write_text("of somebody else")
            write_hand_ins(self.names, hand_ins)
            generated = ("build", ".git", "__pycache__", "runs")
            before = [fingerprint(PROJECT, generated), fingerprint(Path(temporary))]
            ran = subprocess.run([sys.executable, str(HERE / "grade.py"), *(str(hand_ins / name) for name in self.names),
                                  "--out", str(out)], capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertEqual(ran.stderr, "")
            with open(out / "points.csv", newline="") as file:
                rows = {row["hand-in"]: row for row in csv.DictReader(file)}
            for name in self.names:
                with self.subTest(name):
                    got = {number: rows[name][f"lab_{number}"] for number in SOLUTIONS}
                    expected = {number: str(HAND_INS[name][1].get(number, "")) for number in SOLUTIONS}
                    self.assertEqual(got, expected, (out / f"{name}.txt").read_text())
            self.assertEqual(list(rows), self.names)
            link = re.search(r"playground\.html#schedule=zbv&ranks=4&microbatches=12&limit=3&league=0\.\d+", ran.stdout)
            self.assertEqual(bool(link), "league of lab 5, place 1" in ran.stdout, ran.stdout)
            for path in out.iterdir():
                path.unlink()
            self.assertEqual([fingerprint(PROJECT, generated), fingerprint(Path(temporary))], before)

    def test_a_missing_folder_is_an_error_of_one_line(self):
        ran = subprocess.run([sys.executable, str(HERE / "grade.py"), "/no/such/folder"], capture_output=True, text=True)
        self.assertEqual((ran.returncode, len(ran.stderr.splitlines())), (2, 1), ran.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    options, rest = parser.parse_known_args()
    if options.all:
        Grade.names = list(HAND_INS)
    if not has_sandbox():
        print("skipped: bubblewrap is not installed (scripts/setup.sh --for-labs) or may not make namespaces here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + rest)
