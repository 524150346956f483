#!/usr/bin/env python3
"""Run `attn eval` on every case here, with what is known about those that must fail.

    run.py PROGRAM [OPTION...]      options are handed to `attn eval`, such as --kernel=fused

A case that is to be refused must be refused for the right reason.
"""
import glob
import os
import subprocess
import sys
import tempfile

import compare

REFUSED = {
    "error_duplicate_tensor_name_f64": "duplicate object key near '\"wk\"'",
    "error_header_past_end_f32": "header length runs past the end",
    "error_heads_not_multiple_of_kv_heads_f64": "num_heads 4 is not a multiple of num_kv_heads 3",
    "error_key_without_value_f64": "key without value",
    "error_mixed_precision_f64": "'key' has dtype F32, but the query F64",
    "error_overlapping_tensors_f64": "overlaps another tensor",
    "error_padding_mask_shape_f32": "'padding_mask' does not have the shape",
    "error_rope_odd_dhead_f64": "the head width 3 is odd",
    "error_scale_nan_f64": "scale 'nan'",
    "error_truncated_data_f64": "cut short",
    "error_width_not_divisible_by_heads_f64": "not a multiple of num_heads 4",
    "error_window_minus2_f32": "window_left -2",
    "error_zero_heads_f32": "num_heads 0",
}


def evaluate(command, path, result):
    done = subprocess.run(command + ["eval", path, "-o", result], capture_output=True, text=True)
    return done.returncode, done.stderr


def check_refusal(command, name, path, workdir, word):
    """One line on stderr with `word` in it, exit status 1, no file."""
    result = os.path.join(workdir, name)
    code, err = evaluate(command, path, result)
    if code != 1 or err.count("\n") != 1 or word not in err or os.listdir(workdir):
        return ["exit status %d, files %s, message without '%s': %s"
                % (code, os.listdir(workdir), word, err.strip())]
    return []


def main():
    if sys.argv[1] == "--with":  # the program that compare.py sees: options go to the end
        options, program, rest = sys.argv[2].split(), sys.argv[3], sys.argv[4:]
        os.execv(program, [program] + rest + options)
    program, options = os.path.abspath(sys.argv[1]), " ".join(sys.argv[2:])
    command = [sys.executable, os.path.abspath(__file__), "--with", options, program]
    folder = os.path.dirname(os.path.abspath(__file__))
    paths = {os.path.basename(p)[:-len(".case.safetensors")]: p
             for p in sorted(glob.glob(os.path.join(folder, "*.case.safetensors")))}
    counts = {"passed": 0, "failed": 0}
    for name in sorted(set(REFUSED) | set(paths)):
        with tempfile.TemporaryDirectory() as workdir:
            word = REFUSED.get(name)
            if name not in paths:
                failures = ["is listed here, but has no case file"]
            elif word:
                failures = check_refusal(command, name, paths[name], workdir, word)
            else:
                failures = compare.run_case(command, paths[name], workdir, 60)
        counts["failed" if failures else "passed"] += 1
        for line in failures:
            print("FAIL %s: %s" % (name, line))
    print(", ".join("%d %s" % (n, what) for what, n in counts.items()))
    return counts["failed"] > 0 or counts["passed"] == 0


if __name__ == "__main__":
    sys.exit(main())
