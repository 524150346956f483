#!/usr/bin/env python3
"""attn(1) and `attn ... --help` name the same subcommands and the same options.

usage: manual.py COMMAND MAN-PAGE
"""

import pathlib
import re
import sys

from command import options, subcommands

TAG = r'^\.TP\n\.B[IR]? "?(?:-\w, )?--([a-z][\w-]*)'


def sections(page):
    """{subcommand: text}: the subsections (.SS) of COMMANDS."""
    commands = page.partition("\n.SH COMMANDS\n")[2].partition("\n.SH ")[0]
    parts = re.split(r"^\.SS attn (\S+).*$", commands, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def main(attn, page):
    described = sections(page.read_text().replace("\\-", "-"))
    faults = [f"{name}: not in the man page" for name in subcommands(attn) if name not in described]
    for name, text in described.items():
        if name not in subcommands(attn):
            faults.append(f"{name}: in the man page, but no subcommand")
            continue
        have = set(re.findall(TAG, text, re.MULTILINE))
        want = options(attn, name)
        faults += [f"{name}: --{option} is not in the man page" for option in sorted(want - have)]
        faults += [f"{name}: --help lacks --{option}" for option in sorted(have - want)]
    print("\n".join(faults))
    return len(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2])) != 0)
