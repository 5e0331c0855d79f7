#!/usr/bin/env python3
"""Exercises have a level, minutes, a hint and an answer; bugs of the museum have a section: run by ctest, and by

    python3 -m unittest discover -s tests/docs -p 'exercises_test.py'
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXERCISE = re.compile(r"^(\d+)\. (.*?)(?=^\d+\. |^---$|^Hints and answers|\Z)", re.MULTILINE | re.DOTALL)
LEVEL = re.compile(r"`\*{1,3}` (\d+) min: ")
CHECK = re.compile(r"`(build/release/bin/[^`]*)`")


def exercises_of(page):
    """Returns the texts of a page's exercises, on one line each, in their order."""
    text = page.read_text(encoding="utf-8")
    found = EXERCISE.findall(text.split("\n## Exercises\n")[-1])
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1)), page
    return [" ".join(text.split()) for _, text in found]


def pages():
    """Returns each page with exercises, and the heading of its answers."""
    chapters = sorted(ROOT.glob("chapters/*/exercises.md"))
    return [(page, f"Chapter {int(page.parent.name[:2])}") for page in chapters] + [(ROOT / "docs/bugs.md", "Bug museum")]


def answers():
    """Returns by heading: the section of its hints, and that of its answers."""
    text = (ROOT / "docs/answers.md").read_text(encoding="utf-8")
    sections = {}
    for section in text.split("\n## ")[1:]:
        heading, hints, answers_ = re.split(r"\n### .*\n", section)
        sections[heading.strip()] = (hints, answers_)
    return sections


class Exercises(unittest.TestCase):
    def test_there_are_enough(self):
        self.assertGreaterEqual(sum(len(exercises_of(page)) for page, _ in pages()), 32)

    def test_each_has_level_and_minutes(self):
        for page, _ in pages():
            for exercise in exercises_of(page):
                with self.subTest(page.parent.name, exercise=exercise[:60]):
                    self.assertRegex(exercise, LEVEL)

    def test_each_has_a_hint_and_an_answer(self):
        sections = answers()
        for page, heading in pages():
            hints, given = sections[heading]
            count = len(exercises_of(page))
            with self.subTest(heading):
                self.assertEqual(re.findall(r"^(\d+)\. ", hints, re.MULTILINE), [str(i + 1) for i in range(count)])
                self.assertEqual(re.findall(r"^\*\*(\d+)\.\*\* ", given, re.MULTILINE), [str(i + 1) for i in range(count)])


class BugMuseum(unittest.TestCase):
    def test_each_bug_has_a_section_with_a_command_and_a_test(self):
        table = (ROOT / "chapters/common/bugs.cpp").read_text(encoding="utf-8")
        page = (ROOT / "docs/bugs.md").read_text(encoding="utf-8")
        test = (ROOT / "tests/chapters/bugs_test.cpp").read_text(encoding="utf-8")
        names = re.findall(r'\{Bug::\w+, "([\w-]+)"', table)
        self.assertGreaterEqual(len(names), 12)
        for name in names:
            with self.subTest(name):
                section = page.split(f"\n### {name}\n")[1].split("\n### ")[0]
                self.assertIn(f"--inject {name}", section)
                for part in ("*Reported as:*", "*Caught by:*", "*Cure:*"):
                    self.assertIn(part, section)
                self.assertIn(f'"{name}"', test)


if __name__ == "__main__":
    unittest.main()
