#!/usr/bin/env python3
"""What `attn eval` says to settings and tensors out of range: one line, exit status, no file. And
that self-attention is attention whose queries, keys and values are the same.

    test_eval.py PROGRAM
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases"))
from compare import read_tensors  # noqa: E402

SIZES = {"F32": 4, "F64": 8, "U8": 1, "BOOL": 1, "I64": 8}
B, LQ, LK, H, D = 2, 3, 4, 2, 6

# pairs turned, queries and keys from positions of their own
TURNED = {"num_heads": "1", "rope": "half", "rope_base": "30", "rope_position": "4",
          "rope_key_position": "-2"}

# settings, and a word of the refusal
SETTINGS = [
    ({"num_heads": None}, "num_heads is missing"),
    ({"num_heads": ""}, "num_heads ''"),
    ({"num_heads": "2.0"}, "num_heads '2.0'"),
    ({"num_heads": " 2"}, "num_heads ' 2'"),
    ({"num_heads": "2 "}, "num_heads '2 '"),
    ({"num_heads": "+2"}, "num_heads '+2'"),
    ({"num_heads": "0x2"}, "num_heads '0x2'"),
    ({"num_heads": "-2"}, "num_heads -2"),
    ({"num_heads": "2147483648"}, "num_heads 2147483648"),
    ({"num_heads": "18446744073709551618"}, "num_heads 18446744073709551618"),
    ({"num_heads": "4"}, "is not a multiple of num_heads 4"),
    ({"num_kv_heads": "0"}, "num_kv_heads 0"),
    ({"num_kv_heads": "4"}, "not a multiple of num_kv_heads 4"),
    ({"causal": "True"}, "causal 'True'"),
    ({"causal": "1"}, "causal '1'"),
    ({"causal_offset": "1.5"}, "causal_offset '1.5'"),
    ({"causal_offset": "Auto"}, "causal_offset 'Auto'"),
    ({"causal_offset": "-2147483649"}, "causal_offset -2147483649"),
    ({"window_left": "-2"}, "window_left -2"),
    ({"window_right": "-2"}, "window_right -2"),
    ({"window_right": "2147483648"}, "window_right 2147483648"),
    ({"scale": "nan"}, "scale 'nan'"),
    ({"scale": "inf"}, "scale 'inf'"),
    ({"scale": "1e999"}, "scale '1e999'"),
    ({"scale": "0x1p3"}, "scale '0x1p3'"),
    ({"scale": "0,5"}, "scale '0,5'"),
    ({"scale": ""}, "scale ''"),
    ({"scale": "1 "}, "scale '1 '"),
    ({"softcap": "-1"}, "softcap -1"),
    ({"softcap": "inf"}, "softcap 'inf'"),
    ({"alibi": "yes"}, "alibi 'yes'"),
    ({"rope": "neox"}, "rope 'neox'"),
    ({"rope": "half"}, "head width 3 is odd"),
    ({"rope_base": "0"}, "rope_base 0"),
    ({"rope_base": "-1"}, "rope_base -1"),
    ({"rope_position": "x"}, "rope_position 'x'"),
    ({"rope_key_position": "1e3"}, "rope_key_position '1e3'"),
    ({"kernel": "flash"}, "kernel 'flash'"),
    ({"weights": "TRUE"}, "weights 'TRUE'"),
    ({"format": "attn-case-2"}, "format 'attn-case-2'"),
    ({"expect": "ok"}, "expect 'ok'"),
    ({"num_head": "2"}, "'num_head' is unknown"),
    ({"evil\n\x1b[31m": "2"}, "is unknown"),
]

# tensors changed (None = left out), and a word of the refusal
TENSORS = [
    ({"query": None}, "'query' is missing"),
    ({"query": ("I64", [B, LQ, D])}, "'query' has dtype I64"),
    ({"query": ("F64", [LQ, D])}, "'query' has 2 dimensions"),
    ({"query": ("F64", [0, LQ, D])}, "empty"),
    ({"query": ("F64", [B, 0, D])}, "empty"),
    ({"query": ("F64", [1, LQ, D])}, "'key' does not have the shape (1, 4, 6)"),
    ({"key": ("F64", [B, 0, D])}, "empty"),
    ({"key": ("F64", [B, LK, D + 1])}, "'key' does not have the shape (2, 4, 6)"),
    ({"key": ("F64", [LK, D])}, "'key' has 2 dimensions"),
    ({"key": None}, "value without key"),
    ({"value": ("F64", [B, LK + 1, D])}, "'value' does not have the shape (2, 4, 6)"),
    ({"value": ("F32", [B, LK, D])}, "'value' has dtype F32, but the query F64"),
    ({"wv": None}, "a part of wq, wk, wv, wo is missing"),
    ({"wq": None, "wk": None, "wv": None, "wo": None}, "no wq"),
    ({"wq": ("F64", [D, D + 1])}, "'wq' does not have the shape (6, 6)"),
    ({"wq": ("F64", [D])}, "'wq' is no matrix"),
    ({"wq": ("F64", [0, D])}, "'wq' is no matrix"),
    ({"wk": ("F64", [D + 2, D])}, "'wk' does not have the shape (6, 6)"),
    ({"wo": ("F64", [D, 2 * D])}, "'wo' does not have the shape (6, 6)"),
    ({"bq": ("F64", [D + 1])}, "'bq' does not have the shape (6)"),
    ({"bo": ("F64", [1, D])}, "'bo' does not have the shape (6)"),
    ({"padding_mask": ("I64", [B, LK])}, "'padding_mask' has dtype I64"),
    ({"padding_mask": ("U8", [B, LQ])}, "'padding_mask' does not have the shape"),
    ({"padding_mask": ("U8", [1, LK])}, "'padding_mask' does not have the shape"),
    ({"attend_mask": ("F64", [LQ, LK])}, "'attend_mask' has dtype F64"),
    ({"attend_mask": ("U8", [LK])}, "'attend_mask' does not broadcast"),
    ({"attend_mask": ("U8", [LK, LQ])}, "'attend_mask' does not broadcast"),
    ({"attend_mask": ("U8", [H, LQ, LK, 1, 1])}, "'attend_mask' does not broadcast"),
    ({"attend_mask": ("U8", [B, 3, LQ, LK])}, "'attend_mask' does not broadcast"),
    ({"attend_mask": ("U8", [0, LK])}, "'attend_mask' does not broadcast"),
    ({"attn_bias": ("F32", [LQ, LK])}, "'attn_bias' has dtype F32"),
    ({"attn_bias": ("F64", [LQ, LQ])}, "'attn_bias' does not broadcast"),
    ({"sinks": ("F64", [H + 1])}, "'sinks' does not have the shape (2)"),
    ({"grad_output": ("F64", [B, LK, D])}, "'grad_output' does not have the shape (2, 3, 6)"),
    ({"q": ("F64", [1])}, "'q' is unknown"),
]


def write(path, settings, tensors):
    """A valid case of cross-attention, with changes; its numbers are arbitrary."""
    shapes = {"query": [B, LQ, D], "key": [B, LK, D], "value": [B, LK, D],
              "wq": [D, D], "wk": [D, D], "wv": [D, D], "wo": [D, D],
              "bq": [D], "bo": [D], "grad_output": [B, LQ, D]}
    all_tensors = {name: ("F64", shape) for name, shape in shapes.items()}
    all_tensors.update(tensors)
    metadata = {"num_heads": str(H)}
    metadata.update(settings)
    header = {"__metadata__": {k: v for k, v in metadata.items() if v is not None}}
    data = b""
    for name, entry in all_tensors.items():
        if entry:
            count = 1
            for n in entry[1]:
                count *= n
            if len(entry) == 3:
                values = entry[2]
            elif entry[0] == "F64":
                values = [((i * 37 + sum(map(ord, name))) % 101 - 50) / 64 for i in range(count)]
            if entry[0] == "F64":
                added = struct.pack("<%dd" % count, *values)
            else:
                added = bytes(count * SIZES[entry[0]])
            header[name] = {"dtype": entry[0], "shape": entry[1],
                            "data_offsets": [len(data), len(data) + len(added)]}
            data += added
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def self_differs(program, workdir, core, settings):
    """One input as query alone, and as query, key and value: how the results differ."""
    x = [((i * 29) % 83 - 40) / 50 for i in range(B * LQ * D)]
    same = ("F64", [B, LQ, D], x)
    parts = {name: None for name in ["wq", "wk", "wv", "wo", "bq", "bo"]} if core else {}
    results = []
    for cross in (False, True):
        tensors = dict(parts, query=same, key=same if cross else None,
                       value=same if cross else None)
        case, result = os.path.join(workdir, "case"), os.path.join(workdir, "result")
        write(case, dict(settings, causal="true"), tensors)
        done = subprocess.run([program, "eval", case, "-o", result], capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr.strip()
        results.append({name: list(t[2]) for name, t in read_tensors(result).items()})
        os.remove(result)
    alone, cross = results
    cross["grad_query"] = [sum(g) for g in zip(cross["grad_query"], cross.pop("grad_key"),
                                               cross.pop("grad_value"))]
    if sorted(alone) != sorted(cross):
        return "tensors %s and %s" % (sorted(alone), sorted(cross))
    for name in alone:
        worst = max(abs(a - b) for a, b in zip(alone[name], cross[name]))
        if not worst < 1e-13:
            return "%s differs by %g" % (name, worst)
    if not max(map(abs, alone["grad_query"])) > 0.1:
        return "the gradients are all but zero"
    return None


def core_differs(program, workdir):
    """The core alone and between projections that change nothing, with turned pairs."""
    unit = ("F64", [D, D], [float(i % (D + 1) == 0) for i in range(D * D)])
    results = []
    for names in ({"wq": None, "wk": None, "wv": None, "wo": None},
                  {"wq": unit, "wk": unit, "wv": unit, "wo": unit}):
        case, result = os.path.join(workdir, "case"), os.path.join(workdir, "result")
        write(case, TURNED, dict(names, bq=None, bo=None))
        done = subprocess.run([program, "eval", case, "-o", result], capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr.strip()
        results.append({name: list(t[2]) for name, t in read_tensors(result).items()})
        os.remove(result)
    core, layer = results
    for name in core:
        worst = max(abs(a - b) for a, b in zip(core[name], layer[name]))
        if not worst < 1e-13:
            return "%s differs by %g" % (name, worst)
    return None if len(core) == 5 else "tensors %s" % sorted(core)


def main():
    program = os.path.abspath(sys.argv[1])
    failed = 0

    def check(what, arguments, code, word, files, stdout=subprocess.PIPE):
        nonlocal failed
        done = subprocess.run([program, "eval"] + arguments, stdout=stdout, stderr=subprocess.PIPE,
                              cwd=workdir)
        err = done.stderr.decode("utf-8", "replace")
        lines = 0 if code == 0 else 1
        if (done.returncode != code or word not in err or err.count("\n") != lines or done.stdout
                or "\x1b" in err or sorted(os.listdir(workdir)) != sorted(files)):
            failed += 1
            print("FAIL %s: exit status %d, expected %d with '%s': %s"
                  % (what, done.returncode, code, word, err.strip()))

    with tempfile.TemporaryDirectory() as workdir:
        case = os.path.join(workdir, "case")
        for core in (False, True):
            for settings in ({}, TURNED):
                difference = self_differs(program, workdir, core, settings)
                if difference:
                    failed += 1
                    print("FAIL self-attention%s %s: %s"
                          % (", core only" if core else "", settings, difference))
        difference = core_differs(program, workdir)
        if difference:
            failed += 1
            print("FAIL core and layer: %s" % difference)
        write(case, {}, {})
        check("valid", ["case", "-o", "result"], 0, "", ["case", "result"])
        os.remove(os.path.join(workdir, "result"))
        for settings, word in SETTINGS:
            write(case, settings, {})
            check(str(settings), ["case", "-o", "result"], 1, word, ["case"])
        for tensors, word in TENSORS:
            write(case, {}, tensors)
            check(str(tensors), ["case", "-o", "result"], 1, word, ["case"])
        write(case, {}, {})
        # Weights to return and weights to keep: each would fit into the machine, not both. What
        # the system does not promise anyway, or an address space cannot hold, is as good a reason.
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        length = int((0.55 * pages / 4) ** 0.5)
        write(case, {"num_heads": "1", "weights": "true", "kernel": "reference"},
              dict({name: None for name in ["wq", "wk", "wv", "wo", "bq", "bo", "key", "value"]},
                   query=("F32", [1, length, 1]), grad_output=("F32", [1, length, 1])))
        check("all memory", ["case", "-o", "result"], 1, "memory", ["case"])
        write(case, {}, {})
        check("no case", ["-o", "result"], 2, "CASE", ["case"])
        check("no result", ["case"], 2, "-o RESULT", ["case"])
        check("two cases", ["case", "case", "-o", "result"], 2, "case", ["case"])
        check("onto the case", ["case", "-o", "./case"], 2, "case itself", ["case"])
        check("bad kernel", ["case", "-o", "result", "--kernel=best"], 2, "best", ["case"])
        check("absent", ["absent", "-o", "result"], 1, "absent", ["case"])
        check("directory", [".", "-o", "result"], 1, "read .", ["case"])
        left, pipe = os.pipe()
        os.close(left)
        check("nobody reads", ["case", "-o", "/dev/stdout"], 1, "Broken pipe", ["case"], pipe)
        os.close(pipe)
        check("no folder", ["case", "-o", "no/result"], 1, "no/result", ["case"])
        check("onto a folder", ["case", "-o", "."], 1, "write .", ["case"])
    print("%d of %d failed" % (failed, len(SETTINGS) + len(TENSORS) + 15))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
