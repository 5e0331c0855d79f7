#!/usr/bin/env python3
"""Compares the table of wrong answers in docs/teaching.md with that of the program wrong_answers.

  guide_test.py --bin build/release/bin/wrong_answers            exit code 1 if they differ
  guide_test.py --bin build/release/bin/wrong_answers --write    writes the table into the page
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "teaching.md"
MARK = "<!-- wrong answers -->\n"
HEAD = "| lab | wrong answer | criterion that catches it | points |\n|---|---|---|---|\n"


def table(program):
    labs = sorted(re.search(r"lab(\d)\.cpp", path.name)[1] for path in (PROJECT / "tests/labs/wrong").glob("lab?.cpp"))
    rows = [subprocess.run([program, lab, "--table"], capture_output=True, text=True, check=True).stdout for lab in labs]
    return HEAD + "".join(rows)


parser = argparse.ArgumentParser()
parser.add_argument("--bin", required=True)
parser.add_argument("--write", action="store_true")
options = parser.parse_args()
before, shown, after = PAGE.read_text().split(MARK)
made = table(options.bin)
if options.write:
    PAGE.write_text(before + MARK + made + MARK + after)
elif shown != made:
    print(f"{PAGE.relative_to(PROJECT)} does not show the table that the labs make: expected\n{made}got\n{shown}"
          "run tests/labs/guide_test.py with --write")
    sys.exit(1)
