#!/usr/bin/env python3
"""Changes the sources, one small fault at a time, and expects the tests to notice.

usage: mutate.py --check ROOT
       mutate.py run ROOT --build DIR [--only ID]...

--check  every mutation of mutations.json still has its text exactly once in ROOT
run      copies ROOT to DIR/mutation, builds each mutation there and runs the tests that must fail;
         prints a table; exit status 1 if a mutation survived or does not build

A mutation has an id, a file, its original text and the replacement, and the test program and gtest
filter that must go red. One that survives means that a test is missing. The copy is built without
much optimisation for one instruction set, and is kept for the next run.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

LIST = Path(__file__).with_name("mutations.json")
KEYS = ["id", "file", "original", "replacement", "target", "filter"]
# What the tests below are built from; examples and documents are not.
PARTS = ["CMakeLists.txt", "cmake", "engine", "kernels", "autograd", "ops", "models", "tests"]
OPTIONS = [
    "-DSLUICE_TESTS=ON",
    "-DSLUICE_TOOLS=OFF",
    "-DSLUICE_CUDA=OFF",
    "-DSLUICE_ALL_SIMD=OFF",
    "-DSLUICE_KERNEL_OPTIMISATION=-O1",
    "-DSLUICE_WERROR=OFF",  # a mutation may leave a variable unused
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
]
# Seconds. A mutation that makes a test hang is caught, too.
LIMIT = 300


def faults_of(root, mutations):
    seen = set()
    for mutation in mutations:
        name = mutation.get("id", "a mutation without id")
        if list(mutation) != KEYS:
            yield f"{name}: must have {', '.join(KEYS)}, got {', '.join(mutation)}"
            continue
        if name in seen:
            yield f"{name}: occurs twice"
        seen.add(name)
        path = root / mutation["file"]
        count = path.read_text(encoding="utf-8").count(mutation["original"]) if path.is_file() else 0
        if count != 1:
            yield f"{name}: its text must occur once in {mutation['file']}, got {count}"
        if mutation["original"] == mutation["replacement"]:
            yield f"{name}: changes nothing"


def check(root, mutations):
    faults = list(faults_of(root, mutations))
    for fault in faults:
        print(fault)
    print(f"{len(mutations)} mutations, {len(faults)} faults")
    return 1 if faults or not mutations else 0


def copy_sources(root, copy):
    """Makes `copy` equal to `root`; files that are equal keep their times, so little is rebuilt."""
    wanted = set()
    for part in PARTS:
        path = root / part
        for file in [path] if path.is_file() else path.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                wanted.add(file.relative_to(root))
    for file in copy.rglob("*"):
        if file.is_file() and file.relative_to(copy) not in wanted:
            file.unlink()
    for name in wanted:
        source, target = root / name, copy / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


class Copy:
    """A copy of the sources and its build."""

    def __init__(self, root, folder):
        self.source, self.binary = folder / "source", folder / "build"
        copy_sources(root, self.source)
        options = list(OPTIONS)
        if shutil.which("ccache"):
            options.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        command = ["cmake", "-S", self.source, "-B", self.binary, "-G", "Ninja", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def build(self, targets):
        """None when it builds, else what the compiler says."""
        command = ["cmake", "--build", self.binary, "--target", *targets]
        run = subprocess.run(command, capture_output=True, text=True)
        return None if run.returncode == 0 else run.stdout + run.stderr

    def test(self, target, pattern):
        """True when the tests pass, and what they print. A hang is a failure."""
        command = [self.binary / "tests" / target, f"--gtest_filter={pattern}"]
        # Its own process group: a test may have started others.
        run = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True)
        try:
            output, _ = run.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            output, _ = run.communicate()
        return run.returncode == 0, output

    def unmutated_fault(self, mutations):
        """None when every named test exists and passes before anything is changed."""
        targets = sorted({mutation["target"] for mutation in mutations})
        complaint = self.build(targets)
        if complaint is not None:
            return complaint
        for target in targets:
            patterns = {m["filter"] for m in mutations if m["target"] == target}
            for pattern in sorted(patterns):
                passed, output = self.test(target, pattern)
                if not passed or "Running 0 tests" in output:
                    return f"{target} {pattern} must pass without a mutation:\n{output}"
        return None

    def outcome(self, mutation):
        """"caught", "survived" or "does not build", and what there is to say about it."""
        path = self.source / mutation["file"]
        original = path.read_text(encoding="utf-8")
        path.write_text(
            original.replace(mutation["original"], mutation["replacement"]), encoding="utf-8")
        try:
            complaint = self.build([mutation["target"]])
            if complaint is not None:
                return "does not build", complaint
            passed, output = self.test(mutation["target"], mutation["filter"])
            return ("survived" if passed else "caught"), output
        finally:
            path.write_text(original, encoding="utf-8")


def run_all(root, build, mutations):
    folder = build / "mutation"
    folder.mkdir(parents=True, exist_ok=True)
    copy = Copy(root, folder)
    fault = copy.unmutated_fault(mutations)
    if fault is not None:
        print(fault)
        return 1
    counts = {}
    for mutation in mutations:
        begin = time.monotonic()
        outcome, text = copy.outcome(mutation)
        counts[outcome] = counts.get(outcome, 0) + 1
        seconds = time.monotonic() - begin
        print(f"{outcome:<14} {seconds:6.1f} s  {mutation['id']}", flush=True)
        if outcome == "does not build":
            print(text, flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    return 0 if set(counts) == {"caught"} else 1


def main():
    mutations = json.loads(LIST.read_text(encoding="utf-8"))
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        return check(Path(sys.argv[2]), mutations)
    if len(sys.argv) < 2 or sys.argv[1] != "run":
        print(__doc__)
        return 2
    parser = argparse.ArgumentParser(prog="mutate.py run")
    parser.add_argument("root", type=Path)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--only", action="append", metavar="ID")
    arguments = parser.parse_args(sys.argv[2:])
    if check(arguments.root, mutations):
        return 1
    if arguments.only:
        unknown = set(arguments.only) - {mutation["id"] for mutation in mutations}
        if unknown:
            parser.error(f"no mutation is called {', '.join(sorted(unknown))}")
        mutations = [mutation for mutation in mutations if mutation["id"] in arguments.only]
    return run_all(arguments.root, arguments.build.resolve(), mutations)


if __name__ == "__main__":
    sys.exit(main())
