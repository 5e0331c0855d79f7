#!/usr/bin/env python3
"""Tests what scripts/lab.sh says without a build."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def lab(*arguments, project=PROJECT):
    return subprocess.run([str(project / "scripts/lab.sh"), *arguments], capture_output=True, text=True)


class Script(unittest.TestCase):
    def test_start_names_files_that_are_there(self):
        for folder in PROJECT.glob("chapters/0*/lab"):
            said = lab("start", folder.parent.name[1])
            self.assertEqual(said.returncode, 0, said.stderr)
            named = [word.rstrip(".") for word in said.stdout.split() if word.startswith("chapters/")]
            self.assertIn(f"{folder.relative_to(PROJECT)}/README.md", named)
            for name in named:
                self.assertTrue((PROJECT / name).is_file(), name)

    def test_refusals_are_usage_errors(self):
        for arguments in ([], ["start"], ["start", "0"], ["check"], ["check", "x"], ["hint", "1"], ["hint", "1", "4"], ["hint", "4", "1", "3"], ["draw"], ["grade"], ["new-class", "x"], ["new-class", "-1"], ["run", "1"]):
            said = lab(*arguments)
            self.assertEqual((said.returncode, said.stdout), (2, ""), arguments)
            self.assertTrue(said.stderr)

    def test_hints_are_shown_one_at_a_time(self):
        for folder in PROJECT.glob("chapters/0*/lab"):
            number = folder.parent.name[1]
            parts = (folder / "hints.md").read_text().count("\n## Part ")
            for level in "123":
                said = lab("hint", number, level)
                self.assertEqual((said.returncode, said.stderr), (0, ""), (number, level))
                self.assertEqual(said.stdout.count(f"Hint {level}: "), max(parts, 1))
                self.assertFalse([other for other in "123" if other != level and f"Hint {other}: " in said.stdout])
                for part in range(1, parts + 1):
                    hint = lab("hint", number, level, str(part)).stdout
                    self.assertTrue(hint.startswith(f"Part {part}. Hint {level}: "))
                    self.assertGreater(len(hint.splitlines()), 3)

    def test_a_new_class_has_its_seed(self):
        with tempfile.TemporaryDirectory() as name:
            copy = Path(name)
            for folder in ("scripts", "tests/labs"):
                (copy / folder).mkdir(parents=True)
            shutil.copy(PROJECT / "scripts/lab.sh", copy / "scripts")
            self.assertEqual(lab("new-class", "0042", project=copy).returncode, 0)
            self.assertEqual((copy / "tests/labs/class_seed.txt").read_text(), "42\n")


if __name__ == "__main__":
    unittest.main()
