#!/usr/bin/env python3
"""Each public header compiles alone: as C11 and as C++, in both precisions, without a warning.
-ffast-math is refused at compile time.

usage: headers.py INCLUDE-DIR COMPILER [ARGUMENT...]
"""

import pathlib
import shutil
import subprocess
import sys

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]


def compile_text(command, text, include, language):
    return subprocess.run(
        [*command, *WARNINGS, "-I", str(include), "-x", language, "-fsyntax-only", "-"],
        input=text, text=True, capture_output=True)


def main(include, c_compiler):
    failures = 0
    languages = [("c", [*c_compiler, "-std=c11"])]
    for name in ("g++", "clang++"):
        if shutil.which(name):
            languages += [("c++", [name, "-std=" + std]) for std in ("c++11", "c++20")]
    for header in sorted(include.glob("attn/*.h")):
        text = f"#include <attn/{header.name}>\n#include <attn/{header.name}>\nint attn_used;\n"
        for language, command in languages:
            for precision in ([], ["-DATTN_DOUBLE"]):
                result = compile_text(command + precision, text, include, language)
                if result.returncode != 0:
                    failures += 1
                    print(" ".join(command + precision), header.name, result.stderr, sep="\n")

    result = compile_text([*c_compiler, "-std=c11", "-ffast-math"], "#include <attn/attn.h>\n",
                          include, "c")
    if result.returncode == 0 or "-ffast-math" not in result.stderr:
        failures += 1
        print("-ffast-math is not refused:", result.stderr)
    return failures


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2:]) != 0)
