"""The plan of gpu_check.py leaves out the least important parts, and decides anew when a part took more or less."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from gpu_check_plan import Part, choose, describe, run_plan  # noqa: E402


class Clock:
    """A Check whose parts take no real time."""

    def __init__(self, seconds):
        self.left, self.minutes, self.events = seconds, seconds / 60, []

    def begin(self):
        pass

    def seconds_left(self):
        return self.left

    def note(self, part, result):
        self.events.append(f"{part} {result.split(',')[0]}")

    def part(self, name, priority, expected, taken, beside=False):
        def run(_):
            self.left -= taken
            self.events.append(name)

        start = (lambda _: self.events.append(f"{name} starts")) if beside else None
        return Part(name, priority, expected, run, start)


class Plan(unittest.TestCase):
    def names(self, seconds):
        parts = (("levels", 9, 10), ("tests", 1, 50), ("vit", 5, 30), ("conv", 6, 5))
        return [part.name for part in choose([Part(*part, None) for part in parts], seconds)]

    def test_leaves_out_the_least_important(self):
        self.assertEqual(self.names(95), ["levels", "tests", "vit", "conv"])
        self.assertEqual(self.names(94), ["tests", "vit", "conv"])
        self.assertEqual(self.names(80), ["tests", "vit"])

    def test_fills_what_an_important_part_cannot_use(self):
        self.assertEqual(self.names(65), ["levels", "tests", "conv"])
        self.assertEqual(self.names(12), ["conv"])

    def test_says_what_is_left_out(self):
        text = describe([Part("tests", 1, 50, None), Part("vit", 5, 30, None)], 60)
        self.assertIn("50 of 60 s", text)
        self.assertRegex(text, r"50 +1  tests\n")
        self.assertRegex(text, r"30 +5  vit \(left out\)$")

    def run_in(self, seconds, *parts):
        clock = Clock(seconds)
        run_plan(clock, [clock.part(*part) for part in parts])
        return clock.events

    def test_starts_what_runs_beside_others_before_it_waits(self):
        beside = (("tests", 1, 50, 50, True), ("sanitizers", 4, 30, 30, True), ("compilers", 5, 30, 30, True))
        self.assertEqual(self.run_in(100, *beside), ["tests starts", "sanitizers starts", "tests", "sanitizers",
                                                     "compilers not run: left out"])  # fmt: skip

    def test_does_not_wait_for_what_was_not_started(self):
        beside = (("tests", 1, 50, 10, True), ("sanitizers", 4, 60, 0, True))  # it would fit once the tests were so fast
        self.assertEqual(self.run_in(100, *beside), ["tests starts", "tests", "sanitizers not run: left out"])

    def test_decides_anew_when_a_part_took_longer_or_less(self):
        parts = (("build", 1, 50, 80), ("vit", 5, 30, 30), ("kernels", 3, 20, 20))
        self.assertEqual(self.run_in(100, *parts), ["build", "vit not run: left out", "kernels"])
        parts = (("build", 1, 50, 10), ("vit", 5, 60, 60), ("kernels", 3, 20, 20))
        self.assertEqual(self.run_in(100, *parts), ["build", "vit", "kernels"])


if __name__ == "__main__":
    unittest.main()
