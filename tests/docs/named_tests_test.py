#!/usr/bin/env python3
"""The tests and scripts that the pages of promises and of robustness name exist: run by ctest, and by

    python3 -m unittest discover -s tests/docs -p 'named_tests_test.py'

What the last column of a table names in backticks with a capital first is a test, or a regular expression that ctest
finds one by; what ends in .sh or .py is a file. In the text around the tables only Suite.Name is looked for.
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("docs/promises.md", "docs/measurements/robustness.md")
IN_SOURCES = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)")
IN_CMAKE = re.compile(r'(?:add_test\(NAME|set\(test) "?([A-Z][^\s")]+)')
QUOTED = re.compile(r"`([^`]+)`")
FILE = re.compile(r"^[\w./]+\.(?:sh|py)$")


def tests_of_sources():
    files = [file for folder in ("tests", "chapters") for file in ROOT.glob(f"{folder}/**/*.cpp")]
    found = (IN_SOURCES.findall(file.read_text(encoding="utf-8", errors="replace")) for file in files)
    return {f"{suite}.{name}" for names in found for suite, name in names}


def tests_of_cmake():
    """Their names as regular expressions: a variable may be anything."""
    forms = ("tests/**/CMakeLists.txt", "docs/**/CMakeLists.txt", "cmake/*.cmake")
    files = [file for form in forms for file in ROOT.glob(form)]
    names = {name for file in files for name in IN_CMAKE.findall(file.read_text(encoding="utf-8"))}
    return [re.compile(re.sub(r"\\\$\\\{\w+\\\}", ".*", re.escape(name))) for name in names]


def named(text):
    """What a page says that there is: tests, and files."""
    tests, files = [], []
    for line in text.splitlines():
        in_table = line.startswith("|")
        text = re.split(r"(?<!\\)\|", line)[-2] if in_table else line  # the last column
        for quoted in QUOTED.findall(text.replace("\\|", "|")):
            word = quoted.split(" ")[0]
            if FILE.match(word):
                files.append(word)
            elif re.match(r"^[A-Z]" if in_table else r"^[A-Z]\w+\.[A-Z]\w+$", quoted):
                tests.append(quoted)
    return tests, files


class NamedTests(unittest.TestCase):
    def setUp(self):
        self.sources, self.cmake = tests_of_sources(), tests_of_cmake()

    def exists(self, test):
        return any(re.search(test, name) for name in self.sources) or any(
            re.match(test, form.pattern) or form.fullmatch(test) or form.fullmatch(f"{test}/") for form in self.cmake
        )

    def test_exist(self):
        for page in PAGES:
            tests, files = named((ROOT / page).read_text(encoding="utf-8"))
            self.assertGreater(len(tests), 50, page)
            self.assertEqual([test for test in tests if not self.exists(test)], [], f"{page} names tests that there are not")
            self.assertEqual([file for file in files if not (ROOT / file).exists()], [], page)

    def test_one_that_is_not_there_is_found(self):
        self.assertEqual(named("| what | `Gone.AndAway`, `tests/gone.sh` |"), (["Gone.AndAway"], ["tests/gone.sh"]))
        self.assertFalse(self.exists("Gone.AndAway"))
        self.assertTrue(self.exists("Pipelines.*EqualOneDevice"))


if __name__ == "__main__":
    unittest.main()
