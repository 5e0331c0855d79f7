#!/usr/bin/env python3
"""Prints an exam whose numbers follow from a seed, or its key, in Markdown: docs/exam.md.

    scripts/exam.py SEED          the paper, 90 minutes, 60 points
    scripts/exam.py SEED --key    its answers, with points per part

Both are computed by the programs in build/release/bin (or --programs FOLDER). They plan and do not train: some seconds.
"""

import argparse
import pathlib
import re
import subprocess
import tempfile
import textwrap

WIDTH, HEADS, IMAGES, TOKENS = 2048, 16, 256, 64  # the vision transformer of questions 3 to 5 and 9
LAUNCH_MS, LAUNCHES, BLOCK_MS = 0.006, 49, 8.75  # question 8: the book's model; launches per block and micro-batch
MIB, GIB = 2**20, 2**30
BUGS = [  # question 7: a bug of the museum, what is seen, what is wrong, and whether Adam hides it
    ("gradient-sum",
     """A GPipe run has the same loss in its first step as one device with as many micro-batches. From the second step on it
     differs, and the norm of the first step's gradient is {m} times that of one device.""",
     "The gradients of the micro-batches are summed, not averaged",
     "Adam hides it: it divides by the gradient's size, so a constant factor cancels"),
    ("wiped-gradients",
     """One device trains in {m} micro-batches. The loss of its first step is right, but the gradient does not depend on the
     images of any micro-batch but the last.""",
     "zero_grad runs before each micro-batch instead of once per step, so that only the last gradient is left",
     "Adam does not hide it: the lost factor 1 / m cancels, but the gradient is as noisy as of a small batch"),
    ("rate-per-rank",
     """A GPipe run on {p} ranks has the same loss and the same gradient in its first step as one device with as many
     micro-batches. But its update changes each weight {p} times as much.""",
     "The learning rate is multiplied by the number of ranks",
     "Adam does not hide it: its steps are as long as the rate says, whatever the gradient's size"),
    ("same-shard",
     """{p} replicas share each batch. After the first step all have the same weights, which do not depend on the images of any
     replica but the first.""",
     "All replicas train on the first shard of the batch",
     "Adam does not hide it: the gradient has the right size, but is as noisy as of a small batch"),
]  # fmt: skip


class Exam:
    """The numbers of a seed, and what the programs say about them."""

    def __init__(self, seed, programs):
        self.programs = pathlib.Path(programs).resolve()
        turn = seed // 12  # p and the rate repeat after twelve seeds; each turn has another m, v or batch
        self.p = 3 + seed % 3  # ranks
        self.m = self.p * (2 + (seed + turn) % 2)  # micro-batches
        self.v = 2 + 2 * ((seed + turn // 2) % 2)  # chunks per rank: not 3, which would give zb-h1's answer
        self.depth = 12 * self.p  # blocks: p equal stages
        self.book_blocks = 6 * self.p  # those of question 8, in equal stages, too
        self.rate = 10 * (1 + seed % 4)  # GB/s of a link
        self.batch = self.p + 1 + (seed + turn // 4) % 3  # the one that question 6 asks about
        self.bug = BUGS[seed // 3 % len(BUGS)]  # question 7
        self.model = f"--model vit --depth {self.depth} --width {WIDTH} --heads {HEADS} --optimizer adam"
        self.link = f"--link 5us,{self.rate}GB/s"

    def run(self, program, flags="", fails=False):
        """Returns what a program prints, which writes into a scratch folder."""
        if not (self.programs / program).is_file():
            raise SystemExit(f"{self.programs / program} is missing: run scripts/build.sh release --target programs, or name "
                             "a folder with --programs")  # fmt: skip
        done = subprocess.run(
            [self.programs / program, *flags.split()], cwd=self.folder, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False)  # fmt: skip
        if (done.returncode != 0) != fails:
            raise SystemExit(f"{program} {flags}: expected it to {'fail' if fails else 'succeed'}, got:\n{done.stdout}")
        return done.stdout

    def plans(self):
        """Returns the plans of questions 4 and 5 as a table, and the milliseconds of one device and of eight replicas."""
        model = f"--explain --clock modelled --device-model h100 {self.model} --batch-size {IMAGES}"
        self.run("ch01_single_device", f"{model} --out one")
        self.run("ch06_ddp", f"{model} --ranks 8 {self.link} --out data")
        self.run("ch05_interleaved", f"{model} --ranks 8 {self.link} --microbatches 32 --schedule 1f1b --out 1f1b")
        self.run("ch08_tensor_parallel", f"{model} --mesh tp=8 {self.link} --out tensor")
        table = self.run("compare", "one data 1f1b tensor").splitlines()[:5]
        one, data = (float(re.search(r"([\d.]+) ms", line)[1]) for line in table[1:3])
        return table, one, data

    def weight_bytes(self):
        return 4 * 12 * WIDTH**2 * self.depth


def say(text, indent=0):
    """Prints a paragraph, or an item of a list."""
    text = " ".join(text.split())
    after = re.match(r"(\d+\. |- )?", text).end()
    print(textwrap.fill(text, 118, initial_indent=" " * indent, subsequent_indent=" " * (indent + after),
                        break_on_hyphens=False))  # fmt: skip


def parts(*lines):
    for letter, line in zip("abc", lines):
        say(f"- **{letter}** {line}", 3)


def block(lines):
    print("\n```text", *lines, "```\n", sep="\n")


def paper(e):
    _, one, _ = e.plans()
    say(f"""1. {e.p} ranks train a model of equal layers in {e.m} micro-batches. A backward takes as long as two
        forwards.""")
    parts(f"""(4) What share of a step is each rank idle with GPipe, with 1F1B, with interleaved 1F1B in {e.v} chunks per
              rank, and with zb-h1, in which a rank is idle for p - 1 forwards?""",
          """(4) How many activations does each rank hold at most with GPipe, and with 1F1B? How many chunks' activations
             does rank 0 hold in the interleaved order, whose warm-up has 2 (p - 1) + (v - 1) p forwards there?""")
    say(f"2. The same {e.p} ranks run 1F1B.")
    parts("(2) Write the table of ranks 0 and 1 up to their second backward.",
          f"(2) Somebody lets rank 1 begin with {e.p + 1} forwards. Who waits for whom, and for what?",
          "(2) Give two ways to mend it.")
    say(f"""3. A vision transformer has {e.depth} blocks with a width of {WIDTH:,}, and is trained in float32 with
        Adam.""")
    parts("(4) How many GiB do weights, gradients and moments take together?",
          f"""(4) How many per rank in a pipeline of {e.p} equal stages, and in data parallel training on eight ranks,
              without and with ZeRO's first stage?""")
    say(f"""4. (6) It learns from batches of {IMAGES} images of {TOKENS} tokens. How many MiB does a rank send over its
        busiest link in a step, in one direction, on eight ranks, with data parallelism, with a pipeline, and with
        tensor parallelism?""")
    say(f"""5. A GPU of 25.6 teraflop/s, with memory enough, takes {one / 1e3:.2f} s for a step. Eight such GPUs share
        the batch by data parallelism, over links of {e.rate} GB/s.""")
    parts("(4) Does the backward hide the sum?",
          "(2) How long is a step at least?")
    say(f"6. PipeDream runs on {e.p} ranks, each batch uncut. Batches and versions are counted from 0.")
    parts(f"(4) Which version of the weights do forward and backward of batch {e.batch} use on each stage?",
          "(2) How many updates late is its gradient there, and how many versions does each rank keep?",
          "(2) What would be wrong with a gradient without stashing?")
    say("7. " + e.bug[1].format(m=e.m, p=e.p))
    parts("(2) What is wrong?",
          "(2) Would training with Adam hide it, and why?",
          "(2) Which comparison would have found it?")
    say(f"""8. One program drives {e.p} GPUs as a pipeline of {e.book_blocks} blocks, in {e.m} micro-batches. It makes
        {LAUNCHES} launches of {1e3 * LAUNCH_MS:g} µs per block and micro-batch. One GPU takes
        {BLOCK_MS * e.book_blocks:g} ms for a step, and small micro-batches are as efficient as large ones.""")
    parts("(3) How long do the launches take, and how long the GPUs?",
          "(3) Who is slower? What helps if it is the program, and what if it is the GPUs?")
    say(f"""9. (6) Eight GPUs, the model of question 3, links of {e.rate} GB/s. Name two techniques, or meshes, that you
        would plan first. What limits each of them, and which measurement would make you change your mind?""")


def key_of_schedules(e):
    flags = f"--smoke --model mlp --depth 24 --balance layers --ranks {e.p} --microbatches {e.m} --explain"
    names = {"GPipe": "gpipe", "1F1B": "1f1b", f"interleaved, {e.v} chunks": f"interleaved --chunks {e.v}", "zb-h1": "zb-h1"}
    say("""**1.** (p - 1) / (m + p - 1) for GPipe and 1F1B, (p - 1) / (v m + p - 1) and (p - 1) / (3 m + p - 1): a point
        each. GPipe holds m on each rank and 1F1B p - r on rank r, a point each. Rank 0 of the interleaved order holds
        one more than its warm-up, two points.""")
    print("\n| schedule | idle | held at most, by rank |\n|---|---|---|")
    for name, schedule in names.items():
        plan = e.run("ch05_interleaved", f"{flags} --schedule {schedule}")
        idle = re.search(r"^  idle +([\d.]+%)", plan, re.MULTILINE)[1]
        held = re.search(r"^  activations +([\d, ]+) ", plan, re.MULTILINE)[1]
        print(f"| {name} | {idle} | {held} |")
    print()

    e.run("ch05_interleaved", f"{flags} --schedule 1f1b --out table")
    table = (e.folder / "table/schedule.csv").read_text()
    late = table.replace(f"1B0,1F{e.p - 1},1B1,1F{e.p},", f"1F{e.p - 1},1F{e.p},1B0,1B1,")
    (e.folder / "broken.csv").write_text(late)
    error = e.run("ch05_interleaved", f"{flags} --schedule broken.csv", fails=True).splitlines()[-1]
    first = [",".join(row.split(",")[: e.p + 3 - rank]) for rank, row in enumerate(table.splitlines()[:2])]
    say(f"""**2.** The tables below, a point per rank. Rank 0 runs its first backward after {e.p} forwards, so rank 1
        cannot get micro-batch {e.p} before it has sent a gradient: a point for who waits for whom, and one for what.
        Either rank 1 begins with fewer forwards, or rank 0 with more, which costs an activation: a point each.""")
    block([*first, "", error.split("cannot run: ")[1]])


def key_of_bytes(e):
    states, sent = 4 * e.weight_bytes() / GIB, 7 / 4 * e.weight_bytes()
    border = 4 * IMAGES * TOKENS * WIDTH
    say(f"""**3.** 12 C² weights per block and 16 bytes per weight: {states:.2f} GiB (4). A stage has
        {states / e.p:.2f} (1). A replica has all of them (1), and with ZeRO's first stage 8 + 8 / 8 bytes per weight,
        nine sixteenths: {9 / 16 * states:.2f} (2). Embedding, norms and biases, about 0.1%, may be left out.""")
    print()
    table, one, data = e.plans()
    say(f"""**4.** Two points each. 7/4 of the gradients: {sent / MIB:,.0f} MiB. 4 N L C bytes over a border:
        {border / MIB:,.0f}. Four times 7/4 of these bytes per block: {7 * e.depth * border / MIB:,.0f}. The plans, on
        an H100:""")
    block(table)
    backward, total = 2 / 3 * one / 8, sent / (e.rate * 1e6)
    hides = total <= backward
    least = max(backward, total) + one / 24
    say(f"""**5.** The sum takes {sent / 1e6:,.0f} MB / {e.rate} GB/s = {total:.0f} ms, two points. The backward takes
        two thirds of an eighth of the step, {backward:.0f} ms, and
        {"hides it, except for the last bucket" if hides else "does not hide it"}: two points. A step takes at least a
        forward and the longer of the two, {least:.0f} ms: two points. The plan takes {data:.0f}, with the update, copies
        into buckets and the wait for the {"last" if hides else "first"} bucket. (One H100 has not enough memory for the
        step of `one`.)""")
    print()


def key_of_versions(e):
    ledger = e.run("ch04_pipedream", f"--smoke --ranks {e.p} --balance layers --explain --ledger")
    row = re.search(rf"^ *{e.batch}   F.*$", ledger, re.MULTILINE)[0]
    used = re.findall(r"F +(\d+) B +(\d+)", row)
    kept = re.search(r"^  versions +([\d, ]+) ", ledger, re.MULTILINE)[1].split(", ")
    say("""**6.** A backward uses its forward's version. On stage s the newest one lacks the updates of the p - 1 - s
        batches that are still on their way: a point for the rule, three for the numbers. The gradient is as many
        updates late, and rank s keeps p - s versions: a point each. Without stashing the backward would take other
        weights than the forward, and its result would be the gradient of no loss: two points.""")
    print("\n| stage | forward | backward | late | kept |\n|---|---|---|---|---|")
    for stage, ((forward, backward), versions) in enumerate(zip(used, kept)):
        print(f"| {stage} | {forward} | {backward} | {e.batch - int(backward)} | {versions} |")
    print()


def key(e):
    key_of_schedules(e)
    key_of_bytes(e)
    key_of_versions(e)
    name, _, wrong, adam = e.bug
    say(f"""**7.** {wrong}: [{name}](bugs.md#{name}). {adam}. Compare the weights after one
        step with SGD with those of one rank that gets the whole batch{", uncut" if name == "wiped-gradients" else
        " in as many micro-batches" if name != "same-shard" else ""}. Two points each.""")
    print()
    launches = e.book_blocks * e.m * LAUNCHES * LAUNCH_MS
    one = BLOCK_MS * e.book_blocks
    gpus = one / e.p * (e.m + e.p - 1) / e.m
    say(f"""**8.** Launches: {e.book_blocks} · {e.m} · {LAUNCHES} · {1e3 * LAUNCH_MS:g} µs = {launches:.0f} ms, a point.
        GPUs: (m + p - 1) t with t = {one:g} / {e.p} / {e.m} ms, {gpus:.0f} ms, two points.
        {"The program is" if launches > gpus else "The GPUs are"} slower, a point. A slow program: fewer micro-batches,
        recorded steps (CUDA graphs), or a thread or program per GPU. Slow GPUs: more GPUs or micro-batches, until
        launches take as long. A point each.""")
    print()
    table, one, data = e.plans()
    pipeline = float(re.search(r"([\d.]+) ms", table[3])[1])
    sent = 7 / 4 * e.weight_bytes()
    say(f"""**9.** Any two, for each a point for the name, one for a limit with a number (half of it without), one for a
        measurement that could change the order. For instance: data parallelism takes {data:.0f} ms, limited by a sum of
        {sent / (e.rate * 1e6):.0f} ms beside a backward of {one / 12:.0f}. 1F1B in 32 micro-batches takes
        {pipeline:.0f}, limited by the bubble, (p - 1) / (m + p - 1) = {7 / 39:.1%}, and by how efficient pieces of
        {IMAGES // 32} images are. Measure an all-reduce of {sent * 4 / 7 / 1e9:.0f} GB:
        {"below" if data < pipeline else "above"} {sent / ((pipeline - one / 24) * 1e6):.1f} GB/s in each direction
        {"the pipeline" if data < pipeline else "data parallelism"} wins. And measure the step of one GPU with 32 images,
        and with {IMAGES // 32}: the pipeline's time grows with the second. The advisor's first three (below 5% is a tie):""")
    block(e.run("advise", f"{e.model} --device-model h100 --ranks 8 {e.link} --top 3").splitlines()[2:6])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--key", action="store_true")
    parser.add_argument("--programs", default="build/release/bin")
    options = parser.parse_args()
    exam = Exam(options.seed, options.programs)
    with tempfile.TemporaryDirectory() as folder:
        exam.folder = pathlib.Path(folder)
        (key if options.key else paper)(exam)


if __name__ == "__main__":
    main()
