"""What the structural tests learn from the command itself."""

import re
import subprocess


def help_of(attn, *words):
    return subprocess.run([attn, *words, "--help"], text=True, check=True, capture_output=True,
                          stdin=subprocess.DEVNULL).stdout


def subcommands(attn):
    listed = help_of(attn).partition("Commands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  ([a-z]\w*) ", listed, re.MULTILINE)


def options(attn, subcommand):
    """Long options that --help lists, without --help itself, which every command has."""
    listed = re.findall(r"^ +(?:-\w, )?--([a-z][\w-]*)", help_of(attn, subcommand), re.MULTILINE)
    return set(listed) - {"help"}
