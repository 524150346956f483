#!/usr/bin/env python3
"""The README's example compiles and prints what the README says; its commands and links exist.

usage: readme.py SOURCE-ROOT COMMAND|- LIBRARY-FOLDER COMPILER [ARGUMENT...]
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from command import options, subcommands

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "src/README.md"]


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def check_example(root, text, library, compiler):
    source, printed = blocks(text, "c")[0], blocks(text, "text")[0]
    with tempfile.TemporaryDirectory(prefix="attn-readme-") as scratch:
        file, program = pathlib.Path(scratch, "example.c"), pathlib.Path(scratch, "example")
        file.write_text(source)
        for precision in ([], ["-DATTN_DOUBLE"]):
            command = [*compiler, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                       *precision, "-I", root / "include", file, "-o", program, "-L", library,
                       "-lattn", "-lm"]
            built = subprocess.run(list(map(str, command)), text=True, capture_output=True)
            if built.returncode != 0:
                yield f"README.md: the example does not compile:\n{built.stderr}"
                return
            ran = subprocess.run([str(program)], text=True, capture_output=True,
                                 env=dict(os.environ, LD_LIBRARY_PATH=str(library)))
            if ran.returncode != 0 or ran.stdout != printed:
                yield f"README.md: the example printed:\n{ran.stdout}{ran.stderr}"


def check_command(root, attn, words):
    if not words:
        return
    if words[0].startswith("tools/"):
        if not (root / words[0]).exists():
            yield f"README.md: {words[0]} does not exist"
    elif pathlib.Path(words[0]).name == "attn" and len(words) > 1 and words[1][0] != "-" and attn:
        if words[1] not in subcommands(attn):
            yield f"README.md: attn has no {words[1]}"
            return
        for word in words[2:]:
            option = re.match(r"--(?:no-)?([a-z][\w-]*)", word)
            if option and option.group(1) not in options(attn, words[1]):
                yield f"README.md: attn {words[1]} has no --{option.group(1)}"


def check_links(root, name, text):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not ((root / name).parent / target).exists():
            yield f"{name}: links to {target}, which does not exist"


def main(root, attn, library, compiler):
    text = (root / "README.md").read_text()
    faults = [*check_example(root, text, library, compiler)]
    for line in "".join(blocks(text, "sh")).splitlines():
        faults += check_command(root, attn, shlex.split(line, comments=True))
    for name in DOCUMENTS:
        faults += check_links(root, name, (root / name).read_text())
    print("\n".join(faults))
    return len(faults)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2] if sys.argv[2] != "-" else None,
                  sys.argv[3], sys.argv[4:]) != 0)
