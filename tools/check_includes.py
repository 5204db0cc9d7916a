#!/usr/bin/env python3
"""Checks who includes whom.

usage: check_includes.py ROOT

Project headers are written in quotes from the root. Each folder may include those listed below and
itself; <cuda_runtime.h> appears only where a CUDA toolkit is certain; no header reaches itself;
every header starts with one #pragma once. Prints one line per fault; exit status 1 if any.
"""

import re
import sys
from pathlib import Path

ALLOWED = {
    "engine": set(),
    "kernels": {"engine"},
    "autograd": {"engine"},
    "ops": {"engine", "autograd", "kernels"},
    "models": {"engine", "autograd", "ops"},
    "tools": {"engine", "autograd", "ops", "models", "kernels"},
    "bench": {"engine", "autograd", "ops", "models", "kernels", "tests"},
    "tests": {"engine", "autograd", "ops", "models", "kernels", "tools"},
    "examples": {"engine", "autograd", "ops", "models"},
}
CUDA_HOMES = ("engine/cuda/", "kernels/simt/cuda.h")
SUFFIXES = {".h", ".cpp", ".cu", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def faults_of(path, text, headers):
    """Faults of one file; adds its project includes to `headers`."""
    folder = path.split("/")[0]
    if path.endswith(".h") and text.count("#pragma once") != 1:
        yield f"{path}: needs exactly one #pragma once"
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        if target.startswith("cuda") and not path.startswith(CUDA_HOMES):
            yield f"{path}:{number}: {target} belongs to {' and '.join(CUDA_HOMES)} only"
        if quote == "<":
            continue
        headers.append(target)
        owner = target.split("/")[0]
        if owner not in ALLOWED or "/" not in target:
            yield f"{path}:{number}: \"{target}\" is not written from the root"
        elif owner != folder and owner not in ALLOWED[folder]:
            yield f"{path}:{number}: {folder}/ must not include {owner}/ (\"{target}\")"


def cycle_in(graph):
    """One cycle of `graph` as a list of names, or None. Iterative: include chains can be long."""
    done = set()
    for start in graph:
        trail, stack = [], [(start, iter(graph.get(start, ())))]
        while stack:
            node, children = stack[-1]
            if not trail or trail[-1] != node:
                trail.append(node)
            child = next(children, None)
            if child is None:
                done.add(node)
                trail.pop()
                stack.pop()
            elif child in trail:
                return trail[trail.index(child) :] + [child]
            elif child not in done:
                stack.append((child, iter(graph.get(child, ()))))
    return None


def main():
    root = Path(sys.argv[1])
    faults, graph = [], {}
    for folder in ALLOWED:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            headers = graph.setdefault(path, [])
            faults += faults_of(path, file.read_text(encoding="utf-8"), headers)
            faults += [
                f'{path}: "{header}" does not exist'
                for header in headers
                if not (root / header).is_file()
            ]
    cycle = cycle_in(graph)
    if cycle:
        faults.append("include cycle: " + " -> ".join(cycle))
    for fault in faults:
        print(fault)
    print(f"{len(graph)} files, {len(faults)} faults")
    return 1 if faults or not graph else 0


if __name__ == "__main__":
    sys.exit(main())
