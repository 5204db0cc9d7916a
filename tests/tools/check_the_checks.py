#!/usr/bin/env python3
"""Runs the source checks on trees that are wrong on purpose: each fault must be found.

usage: check_the_checks.py TOOLS_FOLDER
"""

import subprocess
import sys
import tempfile
from pathlib import Path

TOOLS = Path(sys.argv[1])
MUTATE = Path(__file__).parents[1] / "mutation" / "mutate.py"

# file contents of a small tree -> what check_includes.py must say, None for a clean tree
INCLUDE_CASES = [
    ({"ops/a.cpp": '#include "kernels/k.h"\n', "kernels/k.h": "#pragma once\n"}, None),
    (
        {"models/a.cpp": '#include "kernels/k.h"\n', "kernels/k.h": "#pragma once\n"},
        "models/ must not include kernels/",
    ),
    (
        {"engine/a.cpp": '#include "ops/o.h"\n', "ops/o.h": "#pragma once\n"},
        "engine/ must not include ops/",
    ),
    ({"engine/a.cpp": "#include <cuda_runtime.h>\n"}, "belongs to engine/cuda/"),
    ({"engine/cuda/a.cpp": "#include <cuda_runtime.h>\n"}, None),
    ({"engine/a.h": "\n"}, "needs exactly one #pragma once"),
    ({"engine/a.cpp": '#include "engine/gone.h"\n'}, "does not exist"),
    ({"engine/a.cpp": '#include "a.h"\n'}, "is not written from the root"),
    (
        {
            "engine/a.h": '#pragma once\n#include "engine/b.h"\n',
            "engine/b.h": '#pragma once\n#include "engine/a.h"\n',
        },
        "include cycle",
    ),
]

# source -> a symbol that check_symbols.py must list, None when the object is clean
SYMBOL_CASES = [
    ("namespace avx2 { template <class T> T f(T x) { return x; } template int f(int); }", None),
    ("template <class T> T f(T x) { return x; } template int f(int);", "int f<int>(int)"),
    ("namespace avx2 { struct S {}; } template <class T> T f(T x) { return x; }"
     " template avx2::S f(avx2::S);", None),
    ("namespace { int f(int x) { return x; } } int g(int x) { return f(x); }", None),
]


def check(what, command, expected):
    """Runs `command`; complains unless it fails with `expected` in its output (or passes)."""
    run = subprocess.run(command, capture_output=True, text=True)
    good = run.returncode == 0 if expected is None else (
        run.returncode == 1 and expected in run.stdout)
    if not good:
        print(f"{what}: expected {expected!r}, got status {run.returncode}:\n{run.stdout}"
              f"{run.stderr}")
    return good


def main():
    good = True
    for number, (files, expected) in enumerate(INCLUDE_CASES):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            command = [sys.executable, TOOLS / "check_includes.py", folder]
            good &= check(f"include case {number}", command, expected)
    for number, (source, expected) in enumerate(SYMBOL_CASES):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.cpp"
            path.write_text(source)
            subprocess.run(["c++", "-c", path, "-o", f"{path}.o"], check=True)
            command = [sys.executable, TOOLS / "check_symbols.py", "avx2", f"{path}.o"]
            good &= check(f"symbol case {number}", command, expected)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, MUTATE, "--check", folder]
        good &= check("mutations of an empty tree", command, "its text must occur once")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
