"""What the structural tests share: C text without comments and strings, and declared names."""

import re

_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)


def code_of(text):
    """The text with comments and the contents of strings blanked; line numbers stay."""
    def blank(match):
        token = match.group()
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        return token[0] + " " * (len(token) - 2) + token[0]
    return _TOKEN.sub(blank, text)


def public_names(include):
    """{function: header} of everything declared with ATTN_API."""
    names = {}
    for header in sorted(include.glob("attn/*.h")):
        code = re.sub(r"^\s*#.*", "", code_of(header.read_text()), flags=re.MULTILINE)
        for name in re.findall(r"\bATTN_API\b[^;{(]*?(\w+)\s*\(", code):
            names[name] = header.name
    return names


def renamed(header):
    """[(name, name in double)] of a names64 list, in its order."""
    return re.findall(r"^#define\s+(attni?_\w+)\s+(\w+)$", header.read_text(), re.MULTILINE)
