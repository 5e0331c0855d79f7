#!/usr/bin/env python3
"""Runs the commands of Markdown pages, and compares what they print with what the pages quote.

    tests/docs/quoted_output.py [PAGE.md …] [--programs build/release/bin] [--write | --write-times | --short]

- Every ```sh block is run by bash, one after the other, in a scratch folder with build/release/bin and data/generated.
- A ```text block quotes the output of the ```sh block above it, and so does Markdown between <!-- printed --> and
  <!-- end -->. "…" on a line of its own stands for any lines.
- A command that nothing quotes must succeed: `cmp` fails where bytes differ.
- <!-- drawn: runs/plan/schedule.svg --> above an image: the image is that file, which the page's commands wrote.
- <!-- not run: REASON --> above a block: it is left out, and what quotes it. Where a command itself shows that it needs
  other machines, a GPU, CIFAR-10 or the sources, it is left out too, but nothing may quote it without such a reason.
- <!-- at night: REASON --> above a block: --short leaves it out.

What a script or a command with --explain prints is computed: every character must be equal. With --clock modelled, what
a training prints is computed too, except for losses and accuracies (below). What others print is measured (with
--profile or --balance time, --explain measures too, unless the clock is modelled). There, numbers with a unit of time or rate,
percentages except for ideal ones, and columns titled as times, shares of time or speed-ups are masked. Peak memory, which
depends on when messages arrive and on which rank that is, must be within 15% or 0.3 MiB in the mean of the ranks. All
else must be equal: losses, accuracies, bytes, counts, errors. Losses and accuracies are those of processors with AVX-512:
others add in another order, and training carries the last bits on to the first digits, so there these are masked too.

--short trains on an eighth of the images where times are measured: losses, accuracies and ideal shares (of a pipeline that
drains after an epoch) are then masked too, and everything else is compared.
--write puts the new output and images in place where they differ, --write-times also where only masked digits do.
Without pages: README.md, the chapters' texts and those of docs/. Exits with 1 if anything differs. Needs only Python.
"""

import argparse
import dataclasses
import difflib
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("README.md", "chapters/*/*.md", "docs/*.md", "docs/reference/*.md")

PIECES = re.compile(
    r"""
    (?: ^<!--[ ](?P<mark> not[ ]run | at[ ]night | drawn):[ ](?P<note> [^\n]+?)[ ]-->\n )?
    (?: ^```(?P<language> \w*)\n (?P<body> .*?) ^```$
      | ^<!--[ ]printed[ ]-->\n (?P<printed> .*?) ^<!--[ ]end[ ]-->$
      | !\[[^]]*\]\((?P<image> [^)]+)\) )
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
# What a command names that a test need not have.
ELSEWHERE = re.compile(
    r"\b(?:mpirun|srun|torchrun)\b|build/(?:cuda|emulated)\b|--data data(?=\s|$)|(?:^|\s)(?:scripts/\w+\.sh|git )\S*",
    re.MULTILINE,
)
COMPUTES = re.compile(r"--explain|scripts/")
MEASURES = re.compile(r"--profile|--balance time")
MODELLED = re.compile(r"--clock modelled")

NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?"
MASKED = re.compile(rf"{NUMBER} ?(?:ns|us|µs|ms|s|img/s|GFLOP/s)(?!\w)|(?<!ideal ){NUMBER}%"
                    rf'|(?:(?<=idle":)|(?<=overlap":)|(?<=seconds":)){NUMBER}')  # fmt: skip
MASKED_TITLE = re.compile(r"(?<!ideal )\b(?:time|seconds|idle|speed-up|overlap)\b")
# What training makes of the last bits, in which processors differ.
TRAINED = {"text": re.compile(rf"(?<=Loss: ){NUMBER}|(?<=acc: ){NUMBER}"), "title": re.compile(r"\b(?:loss|acc)\b")}
IDEAL = {"text": re.compile(rf"(?<=ideal ){NUMBER}"), "title": re.compile(r"\bideal\b")}
PEAK_TITLE = re.compile(r"\bpeak\b|^memory per rank$")
PEAK_TOLERANCE, PEAK_STEP = 0.15, 0.3  # relative, and in MiB
GAP = "…"


@dataclasses.dataclass
class Quote:
    line: int
    span: tuple  # where its lines are in the page
    lines: list
    reason: str  # why it is not compared, or ""


@dataclasses.dataclass
class Command:
    line: int
    text: str
    reason: str  # why it is not run, or ""
    is_marked: bool  # the page gives the reason
    quotes: list = dataclasses.field(default_factory=list)

    @property
    def is_modelled(self):
        return bool(MODELLED.search(self.text))

    @property
    def measures(self):
        return not self.is_modelled and (self.trains or bool(MEASURES.search(self.text)))

    @property
    def trains(self):
        return not COMPUTES.search(self.text)


@dataclasses.dataclass
class Drawing:
    line: int
    image: str
    file: str


def read_page(text, is_short):
    """Returns the page's commands, with what quotes them, and its drawings."""
    commands, drawings = [], []
    for piece in PIECES.finditer(text):
        begin = text.index("\n", piece.start()) + 1 if piece["mark"] else piece.start()
        line = text.count("\n", 0, begin) + 1
        reason = piece["note"] if piece["mark"] in ["not run", *(["at night"] if is_short else [])] else ""
        if piece["image"]:
            if piece["mark"] == "drawn":
                drawings.append(Drawing(line, piece["image"], piece["note"]))
        elif piece["language"] == "sh":
            elsewhere = ELSEWHERE.search(piece["body"])
            needs = f"it needs {elsewhere.group().strip()}" if elsewhere else ""
            commands.append(Command(line, piece["body"], reason or needs, bool(reason)))
        elif piece["printed"] or piece["language"] == "text":
            if not commands:
                commands.append(Command(line, "", "", False))
            group = "printed" if piece["printed"] else "body"
            commands[-1].quotes.append(Quote(line, piece.span(group), lines_of(piece[group]), reason))
    return commands, drawings


def lines_of(text):
    """Returns the lines from the first to the last that is not empty, without spaces at their ends."""
    return [line.rstrip() for line in re.sub(r"\A(?:\s*\n)*", "", text.rstrip()).splitlines()]


def run(command, folder):
    """Returns what a command prints, its errors included, 80 columns wide, and its exit code."""
    done = subprocess.run(
        ["bash", "-e", "-c", command], cwd=folder, env=os.environ | {"COLUMNS": "80", "LC_ALL": "C.UTF-8"}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False)  # fmt: skip
    return lines_of(done.stdout), done.returncode


def shortened(command):
    """Returns a measured command that trains on few images. What is computed depends on how many there are."""
    return command.text.replace("data/generated", "data/short") if command.trains and not command.is_modelled else command.text


def make_scratch(folder, programs, text):
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/bin").symlink_to(programs.resolve())
    for sources in ("chapters", "scripts"):
        (folder / sources).symlink_to(ROOT / sources)
    if "data/generated" in text:
        run("build/release/bin/make_generated_data data/generated", folder)
        run("build/release/bin/make_generated_data --train 1250 --test 250 data/short", folder)


# -- What a quote should be


def places_of(line, output, begin):
    """Returns where in `output` a line is, from `begin` on: as it is, else with other numbers, else its first word."""
    for key in (str.split, lambda text: re.sub(r"[\d.]+", "0", text).split(), lambda text: text.split()[:1]):
        places = [i for i in range(begin, len(output)) if key(output[i]) == key(line)]
        if places:
            return places
    return []


def split_at_gaps(lines):
    parts = [[]]
    for line in lines:
        if line == GAP:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def renewed(quote, output):
    """Returns the quote's lines as they are in `output`: each part between gaps from its first line to its last one.

    Without a gap before it, a part begins where the output does, and without one after it, it ends there. Returns None
    if a part's first or last line is not there.
    """
    parts = split_at_gaps(quote)
    lines, done = [], 0
    for i, part in enumerate(parts):
        if i > 0:
            lines.append(GAP)
        if not part:
            continue
        begins = [0] if i == 0 else places_of(part[0], output, done)
        if not begins:
            return None
        last = begins[0] + len(part) - 1
        ends = [len(output) - 1] if i == len(parts) - 1 else places_of(part[-1], output, begins[0])
        if not ends:
            return None
        end = last if last in ends else ends[0]
        lines += output[begins[0] : end + 1]
        done = end + 1
    return lines


@functools.cache
def is_processor_of_pages():
    """Returns whether this processor computes the digits that the pages quote."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    return cpuinfo.exists() and " avx512f" in cpuinfo.read_text()


def masked_cell(title, cell, peaks, also, is_measured):
    if is_measured and PEAK_TITLE.search(title):
        numbers = [float(number) for number in re.findall(NUMBER, cell)]
        peaks += [sum(numbers) / len(numbers)] if numbers else []
        return re.sub(NUMBER, "#", cell)
    is_masked = (is_measured and MASKED_TITLE.search(title)) or any(mask["title"].search(title) for mask in also)
    return re.sub(f"(?<!ideal ){NUMBER}", "#", cell) if is_masked else cell


def masked(lines, also, is_measured=True):
    """Returns lines with single spaces and # in place of what differs from machine to machine, and the peaks.

    `also` has what is masked besides times and peaks that are measured, of TRAINED and IDEAL.

    Cells are two spaces apart. A line of words only has the titles of the lines below it that have as many cells; of a
    line of two cells, the first is the title.
    """
    titles, shown, peaks = [], [], []
    for line in lines:
        cells = re.split(r" {2,}", line.strip())
        if len(cells) > 2 and not re.search(r"\d", line):
            titles = cells
        elif len(cells) == len(titles):
            cells = [masked_cell(title, cell, peaks, also, is_measured) for title, cell in zip(titles, cells)]
        elif len(cells) == 2:
            cells[1] = masked_cell(*cells, peaks, also, is_measured)
        text = " ".join(cells)
        if is_measured:
            text = MASKED.sub("#", text)
        for mask in also:
            text = mask["text"].sub("#", text)
        shown.append(" ".join(text.split()))
    return shown, peaks


def same_measurement(quoted, new, also):
    (lines, peaks), (new_lines, new_peaks) = masked(quoted, also), masked(new, also)
    return lines == new_lines and all(
        abs(a - b) <= max(PEAK_TOLERANCE * max(a, b), PEAK_STEP) for a, b in zip(peaks, new_peaks)
    )


# -- Pages


class Check:
    """The check of one page."""

    def __init__(self, page, programs, is_short):
        self.page = page
        self.programs = programs
        self.is_short = is_short
        self.also_masked = [TRAINED, IDEAL] if is_short else [] if is_processor_of_pages() else [TRAINED]
        self.text = page.read_text(encoding="utf-8")
        self.findings = []
        self.left_out = []
        self.compared = 0
        self.new_text = {}  # by span: what --write puts there
        self.new_times = {}  # what --write-times also does
        self.new_images = {}

    def find(self, line, text):
        self.findings.append(f"{name_of(self.page)}:{line}: {text}")

    def run(self):
        commands, drawings = read_page(self.text, self.is_short)
        self.ran = sum(not command.reason for command in commands)
        if not self.ran and not drawings:
            return self.leave_out(commands)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            make_scratch(folder, self.programs, self.text)
            self.leave_out(commands)
            for command in commands:
                if not command.reason:
                    self.compare_output(command, folder)
            for drawing in drawings:
                self.compare_image(drawing, folder)

    def leave_out(self, commands):
        for command in commands:
            if command.reason:
                self.left_out.append(f"{name_of(self.page)}:{command.line}: {command.reason}")
            for quote in command.quotes:
                if quote.reason:
                    self.left_out.append(f"{name_of(self.page)}:{quote.line}: {quote.reason}")
                elif command.reason and not command.is_marked:
                    self.find(quote.line, f"quotes a command that is not run, as {command.reason}; "
                                          "say why above the command: <!-- not run: REASON -->")  # fmt: skip

    def is_same(self, command, quoted, new):
        """Returns whether the lines agree in all that is the same on every machine."""
        if command.measures:
            return same_measurement(quoted, new, self.also_masked)
        if quoted == new or not command.trains or is_processor_of_pages():
            return quoted == new
        return masked(quoted, [TRAINED], False) == masked(new, [TRAINED], False)

    def compare_output(self, command, folder):
        quotes = [quote for quote in command.quotes if not quote.reason]
        output, code = run(shortened(command) if self.is_short else command.text, folder)
        if not quotes and code != 0:
            self.find(command.line, "\n".join([f"the command ended with exit code {code}:", *output[-20:]]))
        for quote in quotes:
            self.compared += 1
            new = renewed(quote.lines, output)
            if new is None:
                self.find(quote.line, "\n".join(["the command does not print this; it prints:", *output]))
            elif self.is_same(command, quote.lines, new):
                self.new_times[quote.span] = new
            elif new != quote.lines:
                sides = (quote.lines, new)
                if command.measures:
                    shown = tuple(masked(lines, self.also_masked)[0] for lines in sides)
                    sides = shown if shown[0] != shown[1] else sides
                self.find(quote.line, "\n".join(difflib.unified_diff(*sides, "the page", "the command", lineterm="")))
                self.new_text[quote.span] = new

    def compare_image(self, drawing, folder):
        image, file = self.page.parent / drawing.image, folder / drawing.file
        self.compared += 1
        if not file.is_file():
            self.find(drawing.line, f"no command of the page writes {drawing.file}")
        elif not image.is_file() or image.read_bytes() != file.read_bytes():
            self.find(drawing.line, f"{drawing.image} differs from {drawing.file}, which the page's commands write")
            self.new_images[image] = file.read_bytes()

    def write(self, with_times):
        new = self.new_text | (self.new_times if with_times else {})
        text = self.text
        for begin, end in sorted(new, reverse=True):
            text = text[:begin] + "".join(line + "\n" for line in new[begin, end]) + text[end:]
        self.page.write_text(text, encoding="utf-8")
        for image, content in self.new_images.items():
            image.write_bytes(content)


def name_of(page):
    return page.relative_to(ROOT) if page.is_relative_to(ROOT) else page


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    writes = parser.add_mutually_exclusive_group()
    writes.add_argument("--write", action="store_true")
    writes.add_argument("--write-times", action="store_true")
    writes.add_argument("--short", action="store_true")
    flags = parser.parse_args()
    pages = [page.resolve() for page in flags.pages] or sorted(page for form in PAGES for page in ROOT.glob(form))
    found = 0
    for page in pages:
        check = Check(page, flags.programs, flags.short)
        check.run()
        for finding in check.findings:
            print(finding, file=sys.stderr)
        for left_out in check.left_out:
            print(f"not run: {left_out}")
        print(f"{name_of(page)}: {check.ran} commands run, {check.compared} quotes and images compared, "
              f"{len(check.left_out)} left out, {len(check.findings)} findings", flush=True)  # fmt: skip
        found += len(check.findings)
        if flags.write or flags.write_times:
            check.write(flags.write_times)
    if found and not (flags.write or flags.write_times):
        print("to put the new output in place: tests/docs/quoted_output.py --write PAGE", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
