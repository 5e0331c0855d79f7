"""The checker of traces finds each fault that it looks for."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/chapters"))
from check_trace import complaints_of  # noqa: E402


def named(process, track):
    return [{"ph": "M", "name": f"{kind}_{what}", "pid": process, "tid": track, "args": {}}
            for kind in ("process", "thread") for what in ("name", "sort_index")]  # fmt: skip


def span(name, begin, duration, process=1, track=1, category="action"):
    return {"ph": "X", "name": name, "cat": category, "pid": process, "tid": track, "ts": begin, "dur": duration}


class Checker(unittest.TestCase):
    def check(self, *spans, tracks=((1, 1), (1, 2), (2, 1), (2, 2))):
        metadata = [line for track in tracks for line in named(*track)]
        return complaints_of({"traceEvents": [*metadata, *spans]})

    def test_accepts_what_nests_or_touches(self):
        self.assertEqual(self.check(span("step", 0, 4), span("a", 0, 1.125), span("b", 1.125, 2.875), span("c", 4, 1)), [])

    def test_finds_crossing_slices(self):
        self.assertIn("crosses", self.check(span("a", 0, 2), span("b", 1, 2))[0])
        self.assertEqual(len(self.check(span("inner first", 0, 1), span("outer", 0, 2))), 1)

    def test_finds_actions_that_are_elsewhere_or_twice(self):
        measured = span("0F0", 0, 1)
        self.assertEqual(self.check(measured, span("0F0", 0, 1, process=2)), [])
        self.assertEqual(len(self.check(measured, span("0F0", 0, 1, process=2), span("0F0", 1, 1, process=2))), 1)
        self.assertEqual(len(self.check(measured, span("0F0", 0, 1, process=2, track=2))), 2)

    def test_finds_missing_metadata_and_zeros(self):
        self.assertEqual(len(self.check(span("a", 0, 1), tracks=[])), 4)
        self.assertIn("number 0", self.check(span("a", 0, 1, track=0), tracks=[(1, 0)])[0])


if __name__ == "__main__":
    unittest.main()
