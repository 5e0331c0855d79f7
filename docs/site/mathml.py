"""The formulas of the pages as MathML, which browsers draw by themselves: no network, no script, no fonts to install.

Knows the part of TeX that the pages use. What it does not know is an error that names the formula.
"""

import re
from html import escape

TOKEN = re.compile(r"\s+|\\text\{[^{}]*\}|\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|.", re.DOTALL)
SYMBOLS = {
    "alpha": "α", "beta": "β", "epsilon": "ε", "eta": "η", "lambda": "λ", "mu": "μ", "pi": "π",
    "nabla": "∇", "partial": "∂", "ge": "≥", "le": "≤", "in": "∈", "ldots": "…", "lVert": "‖", "rVert": "‖",
    "cdot": "·", "times": "×", "lceil": "⌈", "rceil": "⌉", "lfloor": "⌊", "rfloor": "⌋",
    "sum": "∑", "leftarrow": "←",
}  # fmt: skip
IDENTIFIERS = {"alpha", "beta", "epsilon", "eta", "lambda", "mu", "pi"}
FUNCTIONS = {"cos", "log", "max", "min", "tanh"}
SPACES = {";": "0.28em", ",": "0.17em", "quad": "1em", "qquad": "2em"}


class FormulaError(ValueError):
    pass


class Reader:
    """Reads one formula from left to right."""

    def __init__(self, tex):
        self.tex = tex
        self.tokens = [token for token in TOKEN.findall(tex) if not token.isspace()]

    def fail(self, what):
        raise FormulaError(f"formula '{self.tex.strip()}': {what}")

    def next(self):
        if not self.tokens:
            self.fail("expected more at the end")
        return self.tokens.pop(0)

    def row(self, end=None):
        """What comes before `end`, or all of it."""
        items = []
        while self.tokens and self.tokens[0] != end:
            items.append(self.scripted())
        if end and self.next() != end:
            self.fail(f"expected {end}")
        return "<mrow>" + "".join(items) + "</mrow>"

    def scripted(self):
        """An atom with what is below and above it."""
        is_sum = self.tokens[0] == r"\sum"
        base, scripts = self.atom(), {}
        while self.tokens and self.tokens[0] in ("_", "^"):
            mark = self.next()
            scripts[mark] = self.atom()
        if not scripts:
            return base
        below, above = ("under", "over") if is_sum else ("sub", "sup")
        name = "m" + (below if "_" in scripts else "") + (above if "^" in scripts else "")
        return f"<{name}>{base}{scripts.get('_', '')}{scripts.get('^', '')}</{name}>"

    def atom(self):
        token = self.next()
        if token == "{":
            return self.row("}")
        if token in ("}", "_", "^", "&", "$"):
            self.fail(f"{token} is not expected here")
        if token[0] == "\\":
            return self.command(token[1:])
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token in "()[]":
            return f'<mo stretchy="false">{token}</mo>'
        return f"<mo>{escape('−' if token == '-' else token)}</mo>"

    def command(self, name):
        if name == "frac":
            return f"<mfrac>{self.atom()}{self.atom()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.atom()}</msqrt>"
        if name == "hat":  # of a letter: the combining character is placed better than an element above it
            return f'<mi style="font-style: italic">{self.next()}\u0302</mi>'
        if name.startswith("text{"):
            return f"<mtext>{escape(name[len('text{') : -1])}</mtext>"
        if name == "Big":
            return f'<mo minsize="1.8em">{self.next()}</mo>'
        if name == "bmod":
            return '<mo lspace="0.22em" rspace="0.22em">mod</mo>'
        if name in FUNCTIONS:
            return f'<mi>{name}</mi><mspace width="{SPACES[","]}"/>'
        if name in SPACES:
            return f'<mspace width="{SPACES[name]}"/>'
        if name in SYMBOLS:
            element = "mi" if name in IDENTIFIERS else "mo"
            return f"<{element}>{SYMBOLS[name]}</{element}>"
        return self.fail(f"unknown command \\{name}; teach it to docs/site/mathml.py")


def mathml(tex, block=False):
    """A <math> element, in the line or as a block of its own. Raises FormulaError."""
    display = ' display="block"' if block else ""
    return f"<math{display}>{Reader(tex).row()}</math>"
