#!/usr/bin/env python3
"""Folders are layers: walks the #includes and fails on an arrow that runs back.

    base <- kernels <- ops <- layer <- model;  train stands on ops, io on base
    tools and examples see <attn/...> alone;  OpenMP lives in ops;  the library never prints or exits

usage: arrows.py SOURCE-ROOT
"""

import pathlib
import re
import sys

from source import code_of

STANDS_ON = {
    "base": {"base"},
    "io": {"base", "io"},
    "kernels": {"base", "kernels"},
    "ops": {"base", "kernels", "ops"},
    "layer": {"base", "kernels", "ops", "layer"},
    "model": {"base", "kernels", "ops", "layer", "model"},
    "train": {"base", "kernels", "ops", "train"},
}
# Public headers without a source file of their name, or with one in a room below too.
ROOM_OF_HEADER = {"real.h": "base", "names64.h": "base", "mha.h": "layer", "rope.h": "ops"}
PRINTS_OR_EXITS = re.compile(
    r"\b(printf|vprintf|puts|putchar|perror|abort|exit|_exit|_Exit|quick_exit)\s*\("
    r"|\b(stdout|stderr)\b")
INCLUDE = re.compile(r"^\s*#\s*include\s+([<\"])([^>\"]+)[>\"]", re.MULTILINE)


def room_of_header(root, name):
    """A public header belongs to the room that has a source file of its name."""
    if name in ROOM_OF_HEADER:
        return ROOM_OF_HEADER[name]
    for room in STANDS_ON:
        if (root / "src" / room / name).with_suffix(".c").exists():
            return room
    return None


def room_of_include(root, kind, path):
    if path.startswith("attn/"):
        return room_of_header(root, path[len("attn/"):])
    if kind == '"':
        return path.split("/")[0]
    return ""


def check_room(root, file, room):
    text = file.read_text()
    code = code_of(text)
    where = file.relative_to(root)
    for kind, path in INCLUDE.findall(text):
        target = room_of_include(root, kind, path)
        if path == "attn/attn.h":
            yield f"{where}: includes all of attn; name the header"
        elif target is None:
            yield f"{where}: <{path}> belongs to no room: there is no src/*/ file of its name"
        elif target and target not in STANDS_ON[room]:
            yield f"{where}: {room} includes {path} of {target}: an arrow that runs back"
        if kind == '"' and not (root / "src" / path).exists():
            yield f"{where}: \"{path}\" is no path below src/"
    if room != "ops":
        if re.search(r"#\s*pragma\s+omp|<omp\.h>|\bomp_\w+\s*\(", code):
            yield f"{where}: OpenMP outside of src/ops"
    for match in PRINTS_OR_EXITS.finditer(code):
        line = code[:match.start()].count("\n") + 1
        yield f"{where}:{line}: {match.group()}: the library never prints, aborts or exits"


def check_user(root, file):
    """Tools and examples include <attn/...>, the system's headers, and what lies beside them."""
    where = file.relative_to(root)
    for kind, path in INCLUDE.findall(file.read_text()):
        if kind == '"' and not (file.parent / path).exists():
            yield f"{where}: \"{path}\" does not lie beside it; only <attn/...> is for users"
        if kind == "<" and (root / "src" / path).exists():
            yield f"{where}: <{path}> is internal"


def check_public(root, header):
    room = room_of_header(root, header.name)
    for _, path in INCLUDE.findall(header.read_text()):
        target = room_of_include(root, "<", path)
        if room and target and target not in STANDS_ON[room]:
            yield f"{header.name} of {room} includes {path} of {target}: an arrow that runs back"


def main(root):
    faults = []
    for room in sorted(path.name for path in (root / "src").iterdir() if path.is_dir()):
        if room not in STANDS_ON:
            faults.append(f"src/{room} is no room of this house")
            continue
        for file in sorted((root / "src" / room).rglob("*.[ch]")):
            faults += check_room(root, file, room)
    for header in sorted((root / "include" / "attn").glob("*.h")):
        if header.name != "attn.h":
            faults += check_public(root, header)
    for folder in ("tools", "examples"):
        for file in sorted((root / folder).rglob("*.[ch]")):
            faults += check_user(root, file)
    everything = (root / "include" / "attn" / "attn.h").read_text()
    for header in sorted((root / "include" / "attn").glob("*.h")):
        if header.name not in ("attn.h", "names64.h"):
            if f"<attn/{header.name}>" not in everything:
                faults.append(f"attn.h does not include {header.name}")
    print("\n".join(faults))
    return len(faults)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])) != 0)
