#!/usr/bin/env python3
"""The papers of scripts/exam.py can be solved as their key does: run by ctest, and by

    python3 -m unittest discover -s tests/docs -p 'exam_test.py'
"""

import importlib.util
import pathlib
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/exam.py"
SPEC = importlib.util.spec_from_file_location("exam", SCRIPT)
exam = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(exam)
SEEDS = range(144)


class Papers(unittest.TestCase):
    def test_cut_their_models_into_equal_stages(self):
        for seed in SEEDS:
            paper = exam.Exam(seed, ".")
            with self.subTest(seed=seed):
                self.assertEqual(paper.depth % paper.p, 0)
                self.assertEqual(paper.book_blocks % paper.p, 0)

    def test_differ(self):
        papers = {tuple(vars(exam.Exam(seed, ".")).items()) for seed in SEEDS}
        self.assertEqual(len(papers), len(SEEDS))


if __name__ == "__main__":
    unittest.main()
