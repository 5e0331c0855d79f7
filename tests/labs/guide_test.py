#!/usr/bin/env python3
"""Compares tables in pages with what programs print: the wrong answers in docs/wrong_answers.md with wrong_answers, and the
criteria in a lab's README.md with the grader lab_N beside it.

  guide_test.py --bin build/release/bin/wrong_answers            exit code 1 if they differ
  guide_test.py --bin build/release/bin/wrong_answers --write    writes the tables into the pages
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
WRONG_HEAD = "| lab | wrong answer | criterion that catches it | points |\n|---|---|---|---|\n"
CRITERIA_HEAD = "| criterion | points |\n|---|---:|\n"


def wrong_answers(program):
    labs = sorted(re.search(r"lab(\d)\.cpp", path.name)[1] for path in (PROJECT / "tests/labs/wrong").glob("lab?.cpp"))
    rows = [subprocess.run([program, lab, "--table"], capture_output=True, text=True, check=True).stdout for lab in labs]
    return WRONG_HEAD + "".join(rows)


def criteria(grader):
    report = subprocess.run([grader], capture_output=True, text=True, check=False).stdout  # fails as long as points are missing
    lines = re.findall(r"^\[ *\d+/(\d+) *\] (.*)$", report, re.MULTILINE)
    return CRITERIA_HEAD + "".join(f"| {name} | {points} |\n" for points, name in lines)


parser = argparse.ArgumentParser()
parser.add_argument("--bin", required=True, type=Path)
parser.add_argument("--write", action="store_true")
options = parser.parse_args()
tables = [(PROJECT / "docs/wrong_answers.md", "<!-- wrong answers -->\n", wrong_answers(options.bin))]
for page in sorted(PROJECT.glob("chapters/*/lab/README.md")):
    tables.append((page, "<!-- criteria -->\n", criteria(options.bin.with_name(f"lab_{int(page.parts[-3][:2])}"))))
differ = False
for page, mark, made in tables:
    before, shown, after = page.read_text().split(mark)
    if options.write:
        page.write_text(before + mark + made + mark + after)
    elif shown != made:
        print(f"{page.relative_to(PROJECT)} does not show the table that the labs make: expected\n{made}got\n{shown}"
              "run tests/labs/guide_test.py with --write")  # fmt: skip
        differ = True
sys.exit(differ)
