#!/usr/bin/env python3
"""What quoted_output.py finds: python3 -m unittest discover -s tests/docs -p '*_test.py'"""

import pathlib
import tempfile
import unittest
import unittest.mock

from quoted_output import Check

EPOCH = "Epoch: 2, Loss: 2.29, time cost: 0.77s, 12996 img/s, idle 73.9% (ideal 75.0%)"
TABLE = ["run  epoch time  ideal speed-up  peak MiB  loss", "one     0.164 s            2.29  3.4 1.0  0.12"]


def block(language, *lines):
    return "\n".join([f"```{language}", *lines, "```", ""])


def printing(*lines, flags=""):
    """A command that prints these lines."""
    return "\n".join(["cat << END", *lines, "END", f"# {flags}"])


class QuotedOutput(unittest.TestCase):
    def setUp(self):
        self.on_another_processor(False)

    def on_another_processor(self, is_another):
        patch = unittest.mock.patch("quoted_output.is_processor_of_pages", lambda: not is_another)
        patch.start()
        self.addCleanup(patch.stop)

    def check(self, *blocks, is_short=False):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = pathlib.Path(folder.name) / "page.md"
        self.page.write_text("\n".join(blocks))
        check = Check(self.page, pathlib.Path(folder.name), is_short)
        check.run()
        return check

    def quotes(self, output, quoted, flags="", is_short=False):
        """How many findings a page has that quotes a command's output so."""
        page = [block("sh", printing(*output, flags=flags)), "prose", block("text", *quoted)]
        return len(self.check(*page, is_short=is_short).findings)

    def test_what_is_computed_must_be_equal(self):
        self.assertEqual(self.quotes(["idle  27.3%", "a"], ["idle  27.3%", "a"], flags="--explain"), 0)
        self.assertEqual(self.quotes(["idle  27.3%"], ["idle  27.4%"], flags="--explain"), 1)
        self.assertEqual(self.quotes(["a  b"], ["a b"], flags="--explain"), 1)
        self.assertEqual(self.quotes(["a", "b"], ["a"], flags="--explain"), 1)

    def test_of_what_is_measured_times_may_differ(self):
        for digits in ("0.77s", "12996 img", "73.9%"):
            self.assertEqual(self.quotes([EPOCH], [EPOCH.replace(digits, digits.replace("9", "8").replace("7", "1"))]), 0)
        for digits in ("2.29", "Epoch: 2", "75.0%"):
            self.assertEqual(self.quotes([EPOCH], [EPOCH.replace(digits, digits.replace("2", "3").replace("5", "4"))]), 1)

    def test_of_what_is_modelled_only_what_is_trained_may_differ_on_another_processor(self):
        for is_another in (False, True):
            self.on_another_processor(is_another)
            for old, new in (("0.77s", "0.78s"), ("12996", "12997"), ("73.9%", "73.8%"), ("75.0", "75.1")):
                self.assertEqual(self.quotes([EPOCH], [EPOCH.replace(old, new)], flags="--clock modelled"), 1)
            loss = EPOCH.replace("Loss: 2.29", "Loss: 2.28")
            self.assertEqual(self.quotes([EPOCH], [loss], flags="--clock modelled"), 0 if is_another else 1)
            self.assertEqual(self.quotes(["a  1.5"], ["a  1.6"], flags="--clock modelled --explain --profile"), 1)
            for old, new, findings in (("0.164", "0.165", 1), ("3.4 1.0", "3.4 1.1", 1), ("0.12", "0.13", not is_another)):
                table = [TABLE[0], TABLE[1].replace(old, new)]
                self.assertEqual(self.quotes(TABLE, table, flags="--clock modelled"), findings)

    def test_columns_of_times_may_differ(self):
        for old, new, findings in (("0.164", "10.23", 0), ("2.29", "2.28", 1), ("3.4 1.0", "3.3 1.2", 0),
                                   ("3.4 1.0", "3.4 2.0", 1), ("3.4 1.0", "3.4", 1), ("0.12", "0.13", 1)):  # fmt: skip
            self.assertEqual(self.quotes(TABLE, [TABLE[0], TABLE[1].replace(old, new)]), findings, new)

    def test_on_another_processor_losses_and_accuracies_may_differ(self):
        self.on_another_processor(True)
        self.assertEqual(self.quotes([EPOCH], [EPOCH.replace("2.29", "2.31")]), 0)
        self.assertEqual(self.quotes([EPOCH], [EPOCH.replace("Epoch: 2", "Epoch: 3")]), 1)
        self.assertEqual(self.quotes(TABLE, [TABLE[0], TABLE[1].replace("0.12", "0.13")]), 0)
        self.assertEqual(self.quotes(TABLE, [TABLE[0], TABLE[1].replace("2.29", "2.28")]), 1)

    def test_in_short_what_trains_has_other_images_and_what_computes_the_same(self):
        page = (block("sh", "echo data/generated Loss: 2"), block("text", "data/short Loss: 1"),
                block("sh", "echo data/generated Loss: 2 # --explain"), block("text", "data/generated Loss: 2"))  # fmt: skip
        self.assertEqual(self.check(*page, is_short=True).findings, [])
        self.assertEqual(len(self.check(*page).findings), 1)
        modelled = (block("sh", "echo data/generated # --clock modelled"), block("text", "data/generated"))
        self.assertEqual(self.check(*modelled, is_short=True).findings, [])

    def test_a_summary(self):
        output = ["  step time        0.345 ms, virtual clock", "  memory per rank  3.4, 1.0 MiB at most"]
        for old, new, findings in (("0.345", "1.2", 0), ("3.4", "3.5", 0), ("3.4", "4.4", 1), ("virtual", "wall", 1)):
            self.assertEqual(self.quotes(output, [line.replace(old, new) for line in output]), findings, new)

    def test_gaps(self):
        output = ["a", "b", "c 1", "d", "e"]
        for quoted in (["…"], ["a", "…"], ["…", "e"], ["…", "b", "c 1", "…", "e"], output, ["…", "c 1", "…"]):
            self.assertEqual(self.quotes(output, quoted, flags="--explain"), 0, quoted)
        for quoted in (["b", "…"], ["…", "d"], ["…", "b", "d", "…"], ["…", "c 2", "…"], ["…", "x", "…"]):
            self.assertEqual(self.quotes(output, quoted, flags="--explain"), 1, quoted)

    def test_several_quotes_of_one_command(self):
        check = self.check(block("sh", printing("a", "b")), block("text", "a", "…"), block("text", "…", "b"))
        self.assertEqual((check.ran, check.compared, check.findings), (1, 2, []))

    def test_commands_share_a_folder_and_must_succeed(self):
        self.assertEqual(self.check(block("sh", "echo a > a"), block("sh", "echo a | cmp - a")).findings, [])
        self.assertEqual(len(self.check(block("sh", "echo a > a"), block("sh", "echo b | cmp - a")).findings), 1)

    def test_errors_are_quoted_with_their_exit_code_unseen(self):
        self.assertEqual(self.check(block("sh", "echo wrong >&2", "exit 2"), block("text", "wrong")).findings, [])

    def test_what_is_left_out(self):
        marked = self.check("<!-- not run: it takes an hour -->\n" + block("sh", "sleep 3600"), block("text", "done"))
        self.assertEqual((marked.ran, marked.findings), (0, []))
        self.assertIn("it takes an hour", marked.left_out[0])
        elsewhere = self.check(block("sh", "mpirun -np 2 hostname"))
        self.assertEqual((elsewhere.ran, elsewhere.findings), (0, []))
        self.assertIn("mpirun", elsewhere.left_out[0])

    def test_what_is_left_out_in_short(self):
        page = ("<!-- at night: 30 trainings -->\n" + block("sh", "echo a"), block("text", "b"))
        short = self.check(*page, is_short=True)
        self.assertEqual((short.ran, short.findings), (0, []))
        self.assertIn("30 trainings", short.left_out[0])
        self.assertEqual(len(self.check(*page).findings), 1)

    def test_nothing_is_left_out_in_silence(self):
        quoted = self.check(block("sh", "mpirun -np 2 hostname"), block("text", "first"))
        self.assertIn("say why", quoted.findings[0])

    def test_drawings(self):
        command = block("sh", "mkdir plan", "echo new > plan/schedule.svg")
        check = self.check(command, "<!-- drawn: plan/schedule.svg -->\n![a\npicture](a.svg)")
        self.assertIn("page.md:7: a.svg differs", check.findings[0])
        check.write(with_times=False)
        self.assertEqual((self.page.parent / "a.svg").read_text(), "new\n")

    def test_written_where_it_differs(self):
        check = self.check(block("sh", printing("a 2")), block("text", "a 1"), "prose", block("sh", printing("1 s")),
                           block("text", "2 s"))  # fmt: skip
        self.assertIn("page.md:8:", check.findings[0])
        check.write(with_times=False)
        page = self.page.read_text()
        self.assertIn(block("text", "a 2"), page)
        self.assertIn(block("text", "2 s"), page)
        check.write(with_times=True)
        self.assertIn(block("text", "1 s"), self.page.read_text())


if __name__ == "__main__":
    unittest.main()
