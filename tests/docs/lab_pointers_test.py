#!/usr/bin/env python3
"""Where a lab's grader sends a student exists, such as `chapter 1, "Micro-batches"`: run by ctest, and by

    python3 -m unittest discover -s tests/docs -p 'lab_pointers_test.py'
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
POINTER = re.compile(r'(chapter (\d)|[\w/]+\.md), \\"([^"\\]+)\\"')
TITLE = re.compile(r"^#+ (.*)|^\*\*(.*?)[.:]?\*\*", re.MULTILINE)


class LabPointers(unittest.TestCase):
    def test_name_a_section_of_their_page(self):
        found = 0
        for source in sorted([*ROOT.glob("tests/labs/*.cpp"), *ROOT.glob("tests/labs/*.h")]):
            for page, chapter, title in POINTER.findall(source.read_text(encoding="utf-8")):
                path = next(ROOT.glob(f"chapters/0{chapter}_*/README.md")) if chapter else ROOT / page
                titles = {part.strip() for pair in TITLE.findall(path.read_text(encoding="utf-8")) for part in pair}
                with self.subTest(source=source.name, page=page):
                    self.assertTrue(any(re.match(re.escape(title) + r"(:|$)", one) for one in titles), title)
                found += 1
        self.assertGreater(found, 15)


if __name__ == "__main__":
    unittest.main()
