#!/usr/bin/env python3
"""The files of .devcontainer/ name no package: they run scripts/setup.sh, with options that it has. Run by ctest, and by

    python3 -m unittest discover -s tests/scripts -p 'containers_test.py'
"""

import json
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".devcontainer"
CONTAINERFILES = sorted(FOLDER.glob("Containerfile*"))


def instructions(path):
    """Returns the (instruction, arguments) of a Containerfile."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


class Containerfiles(unittest.TestCase):
    def test_there_is_one_for_the_cpu_and_one_for_gpus(self):
        self.assertEqual([path.name for path in CONTAINERFILES], ["Containerfile", "Containerfile.cuda"])

    def test_they_copy_the_set_up_script_and_run_it_with_options_that_it_has(self):
        setup = (ROOT / "scripts/setup.sh").read_text(encoding="utf-8")
        case = re.search(r"^  case .*?^  esac", setup, re.MULTILINE | re.DOTALL).group()
        known = set(re.findall(r"--for-[a-z]+(?=\)| [|)])", case))
        for path in CONTAINERFILES:
            with self.subTest(path.name):
                (start, base), (copy, copied), (run, command) = instructions(path)  # and nothing else
                self.assertEqual((start, copy, run), ("FROM", "COPY", "RUN"))
                self.assertRegex(base, r"^docker\.io/[a-z/]+:[0-9][-.a-z0-9]*$")  # a version, not "latest"
                source, target = copied.split()
                self.assertEqual(ROOT / "scripts" / source, ROOT / "scripts/setup.sh")
                script, *options = command.removesuffix(" && rm -rf /var/lib/apt/lists/*").split()
                self.assertEqual(script, target)
                self.assertTrue(options)
                self.assertLessEqual(set(options), known)

    def test_the_script_refuses_an_option_that_it_does_not_have(self):
        wrong = subprocess.run([ROOT / "scripts/setup.sh", "--for-nothing"], capture_output=True, text=True)
        self.assertEqual(wrong.returncode, 2)
        for option in re.findall(r"--for-[a-z]+", "".join(path.read_text() for path in CONTAINERFILES)):
            self.assertIn(f"[{option}]", wrong.stderr)

    def test_their_heads_say_how_each_is_built(self):
        for path in CONTAINERFILES:
            self.assertRegex(path.read_text(), rf"\n#   podman build -t \S+ -f \.devcontainer/{path.name} scripts\n")


class DevContainer(unittest.TestCase):
    def test_it_is_built_from_the_file_for_the_cpu(self):
        build = json.loads((FOLDER / "devcontainer.json").read_text())["build"]
        self.assertTrue((FOLDER / build["dockerfile"]).samefile(FOLDER / "Containerfile"))
        self.assertTrue((FOLDER / build["context"]).samefile(ROOT / "scripts"))


if __name__ == "__main__":
    unittest.main()
