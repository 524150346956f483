#!/usr/bin/env python3
"""The names in the library are the names in the headers.

Exported: every function declared with ATTN_API, in double too where names64.h says so, and nothing
else. In the static library: names that begin with attn, and both precisions of each internal name.

usage: symbols.py SOURCE-ROOT SHARED-LIBRARY STATIC-LIBRARY
"""

import pathlib
import re
import subprocess
import sys

from source import public_names, renamed


def defined(*nm_arguments):
    lines = subprocess.run(["nm", "--defined-only", *nm_arguments], text=True, check=True,
                           capture_output=True).stdout.splitlines()
    names = {fields[2] for fields in map(str.split, lines) if len(fields) == 3}
    # The checkers' own marks, and what some linkers add to each library.
    return {name for name in names if not re.match(r"_|\.|DW\.|asan|ubsan", name)}


def check_list(header, prefix):
    """A names64 list is sorted, has no name twice and renames every name the same way."""
    pairs = renamed(header)
    names = [name for name, _ in pairs]
    if names != sorted(set(names)):
        wrong = [b for a, b in zip(names, names[1:]) if a >= b]
        yield f"{header.name}: not sorted or twice: {' '.join(wrong)}"
    for name, double in pairs:
        if double != name.replace(prefix, prefix[:-1] + "64_", 1):
            yield f"{header.name}: {name} becomes {double}"


def differences(what, have, want):
    for name in sorted(want - have):
        yield f"{what}: {name} is missing"
    for name in sorted(have - want):
        yield f"{what}: {name} should not be there"


def main(root, shared, static):
    list_public = root / "include/attn/names64.h"
    list_internal = root / "src/base/names64_internal.h"
    faults = [*check_list(list_public, "attn_"), *check_list(list_internal, "attni_")]

    declared = set(public_names(root / "include"))
    bound = dict(renamed(list_public))
    for name in sorted(set(bound) - declared):
        faults.append(f"names64.h: {name} is declared in no header")
    faults += differences(shared, defined("-D", shared), declared | set(bound.values()))

    archive = defined("--extern-only", static)
    for name in sorted(archive):
        if not re.match(r"attni?(64)?_", name):
            faults.append(f"{static}: {name} does not begin with attn")
    for pair in renamed(list_internal):
        faults += [f"{static}: {name} is missing" for name in pair if name not in archive]
    print("\n".join(faults))
    return len(faults)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]) != 0)
