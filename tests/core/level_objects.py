#!/usr/bin/env python3
"""Checks that no processor runs instructions that it lacks, in a program with CPU kernels for several levels.

    tests/core/level_objects.py --lowest x86-64 --program ch01_single_device --library libstagecoach_core.a \\
        --level x86-64-v3 stagecoach_kernels_x86_64_v3.o [--level …]

- In the object of a level, everything is local except for its entry: no linker can take an inline function from it for
  other code. It has no section that is replaceable (a COMDAT group), and runs nothing before main.
- Its only variables are those of its own tables: threads, memory and errors are those of the whole program.
- All other objects of the library, and all functions of the program that are not local, keep to the lowest level.

Needs the binutils (nm, readelf, objdump, ar). Exits with 1 if anything is wrong.
"""

import argparse
import pathlib
import re
import subprocess
import sys

# What the levels above the lowest add. Above x86-64-v3 that is AVX-512: its registers. Above x86-64-v2 it is also VEX
# instructions, which all begin with v, and those on bits of integers.
AVX_512 = r".*%(?:zmm|k[0-7]\b|[xy]mm(?:1[6-9]|[23][0-9]))"
SINCE_V3 = r"(?!verr|verw|vm)v[a-z]|(?:andn|bextr|bls[a-z]+|bzhi|mulx|pdep|pext|rorx|s[ah][lr]x|lzcnt)\b"
ABOVE = {"x86-64": SINCE_V3, "x86-64-v2": SINCE_V3, "x86-64-v3": AVX_512}
INSTRUCTION = re.compile(r"^\s+[0-9a-f]+:\t([a-z][^#<]*)")
FUNCTION = re.compile(r"^([0-9a-f]+) <(.*)>:$")
OWN_VARIABLES = re.compile(r"^stagecoach::cpu::Row<.*::(?:kernel|name|cost)$|::tables$|DW\.ref\.__gxx_personality_v0$")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def functions_with(instructions, file):
    """Returns the address and name of each function that has such instructions, with one of them."""
    found, function = {}, None
    for line in output_of("objdump", "--disassemble", "--no-show-raw-insn", "--wide", file).splitlines():
        if match := FUNCTION.match(line):
            function = (int(match[1], 16), match[2])
        elif (match := INSTRUCTION.match(line)) and instructions.match(match[1]):
            found.setdefault(function, match[1].strip())
    return found


def symbols_of(file):
    """Returns (type, address, name) of each symbol that the file defines; the type is a letter of nm."""
    lines = output_of("nm", "--defined-only", file).splitlines()
    return [(fields[1], int(fields[0], 16), fields[2]) for fields in map(str.split, lines) if len(fields) == 3]


def faults_of_level(level, file, instructions):
    entry = "stagecoach_tables_of_" + level.replace("-", "_")
    visible = [name for kind, _, name in symbols_of(file) if not kind.islower() or kind in "uvw"]
    if visible != [entry]:
        yield f"expected {entry} to be the only symbol that is not local, got {visible}"
    if "no section groups" not in output_of("readelf", "--section-groups", file):
        yield "it has section groups, of which a linker may keep another object's"
    if early := re.findall(r"\.(?:init_array|ctors|preinit_array)\S*", output_of("objdump", "--section-headers", file)):
        yield f"it runs code before main: {early}"
    for line in output_of("nm", "--demangle", "--defined-only", file).splitlines():
        _, kind, name = line.split(" ", 2)
        is_data = kind in "bBdD" and not name.startswith(("typeinfo", "vtable", "guard variable"))
        if is_data and not OWN_VARIABLES.search(name) and not is_constant(name, file):
            yield f"it has a variable of its own: {name}"
    if not functions_with(instructions, file):
        yield "it has no instruction of its level, so this check may be blind"


def is_constant(name, file):
    """Returns whether a variable is only written while the program is loaded (.data.rel.ro)."""
    return any(".data.rel.ro" in line and line.endswith(name)
               for line in output_of("objdump", "--syms", "--demangle", file).splitlines())  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lowest", choices=ABOVE, required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--level", nargs=2, action="append", required=True, metavar=("NAME", "OBJECT"))
    arguments = parser.parse_args()

    instructions = re.compile(ABOVE[arguments.lowest])
    faults = [f"{file}: {fault}"
              for level, file in arguments.level for fault in faults_of_level(level, file, instructions)]  # fmt: skip
    level_files = {pathlib.Path(file).name for _, file in arguments.level}
    member = ""
    for line in output_of("objdump", "--disassemble", "--no-show-raw-insn", "--wide", arguments.library).splitlines():
        if match := re.match(r"^(\S+\.o):\s+file format", line):
            member = match[1]
        elif member not in level_files and (match := INSTRUCTION.match(line)) and instructions.match(match[1]):
            faults.append(f"{arguments.library}({member}): {match[1].strip()}")
            member = next(iter(level_files))  # one line per object
    entries = {"stagecoach_tables_of_" + level.replace("-", "_") for level, _ in arguments.level}
    visible = {address
               for kind, address, name in symbols_of(arguments.program)
               if kind in "TWVu" and name not in entries}  # fmt: skip
    faults += [f"{arguments.program}: {name}: {instruction}"
               for (address, name), instruction in functions_with(instructions, arguments.program).items()
               if address in visible]  # fmt: skip
    print("\n".join(faults) or f"only the objects of the {len(level_files)} higher levels have their instructions")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
