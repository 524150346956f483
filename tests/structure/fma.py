#!/usr/bin/env python3
"""The vector kernels hold fused multiply-adds in registers of full width.

With -std=c11 alone gcc emits none: -ffp-contract=fast has to reach the kernels. Looks at one kernel,
exp, of each instruction set and precision.

usage: fma.py STATIC-LIBRARY
"""

import re
import subprocess
import sys

REGISTER = {"avx2": "ymm", "avx512": "zmm"}
SUFFIX = {"attni": "ps", "attni64": "pd"}


def functions(library):
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], text=True, check=True,
                          capture_output=True).stdout
    parts = re.split(r"^[0-9a-f]+ <(\w+)>:$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def main(library):
    bodies = functions(library)
    faults = 0
    for prefix, suffix in SUFFIX.items():
        for isa, register in REGISTER.items():
            body = bodies[f"{prefix}_exp_{isa}"]
            found = re.findall(rf"\bvfn?m(?:add|sub)\d+{suffix}\b.*%{register}", body)
            print(f"{prefix}_exp_{isa}: {len(found)} fused multiply-adds on %{register}")
            faults += not found
        if re.search(r"\bvfmadd", bodies[f"{prefix}_exp_baseline"]):
            print(f"{prefix}_exp_baseline: holds instructions beyond the baseline")
            faults += 1
    return faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) != 0)
