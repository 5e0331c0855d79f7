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
        for arguments in ([], ["start"], ["start", "9"], ["check", "x"], ["grade"], ["new-class", "x"], ["new-class", "-1"], ["run", "1"]):
            said = lab(*arguments)
            self.assertEqual((said.returncode, said.stdout), (2, ""), arguments)
            self.assertTrue(said.stderr)

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
