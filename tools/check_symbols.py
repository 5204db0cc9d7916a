#!/usr/bin/env python3
"""Lists weak symbols of per-ISA objects outside their ISA's namespace.

usage: check_symbols.py ISA OBJECT...

A weak symbol (an inline function or template that was not inlined) exists once per program: the
linker may keep the copy compiled for AVX-512 for everyone, and an older CPU dies of an illegal
instruction. So each weak symbol must name a type or namespace of its own ISA. Prints one line per
fault; exit status 1 if any.
"""

import subprocess
import sys

WEAK = set("WVuvw")


def weak_symbols(path):
    """(mangled, demangled) of the weak symbols that `path` defines."""
    plain = subprocess.run(
        ["nm", "--defined-only", path], check=True, capture_output=True, text=True
    )
    names = [line.split()[-1] for line in plain.stdout.splitlines() if line.split()[-2] in WEAK]
    shown = subprocess.run(
        ["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True
    )
    return list(zip(names, shown.stdout.splitlines()))


def main():
    isa, objects = sys.argv[1], sys.argv[2:]
    mark = f"{len(isa)}{isa}"  # how a namespace appears in a mangled name
    faults = 0
    for path in objects:
        for mangled, shown in weak_symbols(path):
            # A reference to another object's DWARF or unwind data is shared by design.
            if mark in mangled or mangled.startswith("DW.ref."):
                continue
            print(f"{path}: weak outside namespace {isa}: {shown}")
            faults += 1
    print(f"{isa}: {len(objects)} objects, {faults} faults")
    return 1 if faults or not objects else 0


if __name__ == "__main__":
    sys.exit(main())
