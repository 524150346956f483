#!/usr/bin/env python3
"""Installs into a fresh folder and uses the copy as a stranger would: pkg-config, shared and static.

Then the same program is built and run with attn as a subproject, if asked to (slow: it builds the
library once more).

usage: install.py BUILD-ROOT SOURCE-ROOT installed|subproject COMPILER [ARGUMENT...]
"""

import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

# A user's program: one layer forward, written against attn_real, linked with nothing but attn.
PROGRAM = """
#include <attn/attn.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    attn_mha_config cfg = {.d_model = 8, .num_heads = 2, .bias = true};
    attn_real *theta = calloc(attn_mha_num_params(&cfg), sizeof *theta);
    attn_real x[3 * 8] = {1, 2, 3}, y[3 * 8];
    attn_mha_input in = {.batch = 1, .len_q = 3, .query = x, .mask = {.causal = true}};
    attn_mha_params w = attn_mha_params_view(&cfg, theta);
    attn_memory need;
    attn_arena arena;
    if (!theta || attn_mha_params_init(&cfg, theta, 1) != ATTN_OK ||
        attn_mha_memory(&cfg, &in, &need) != ATTN_OK ||
        attn_arena_create(&arena, need.inference) != ATTN_OK ||
        attn_mha_forward(&cfg, &w, &in, y, &arena, NULL) != ATTN_OK)
        return puts(attn_error_message()), 1;
    printf("attn %s %zu bytes %g\\n", attn_version(), sizeof(attn_real), (double)y[0]);
    attn_arena_destroy(&arena);
    free(theta);
    return 0;
}
"""


class Failure(Exception):
    pass


def run(command, **options):
    command = [str(word) for word in command]
    done = subprocess.run(command, text=True, capture_output=True, **options)
    if done.returncode != 0:
        raise Failure(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def meson():
    """The meson that runs this test."""
    return shlex.split(os.environ.get("MESONINTROSPECT", "meson introspect"))[:-1]


def run_program(program, directory, expect_bytes):
    env = dict(os.environ, LD_LIBRARY_PATH=str(directory))
    words = run([program], env=env)
    if not words.startswith("attn ") or f" {expect_bytes} bytes " not in words:
        raise Failure(f"{program} said: {words}")


def check_description(pc, staging):
    """The .pc file names libraries and headers that are there."""
    text = pc.read_text()
    if str(staging) in text:
        raise Failure(f"{pc} names the folder it was staged in")
    for word in shlex.split(" ".join(line.partition(":")[2] for line in text.splitlines()
                                     if line.startswith("Libs"))):
        if word.startswith("/") and not pathlib.Path(word).exists():
            raise Failure(f"{pc} names {word}, which does not exist")


def check_installed(build, compiler, scratch):
    staging = scratch / "staging"
    run([*meson(), "install", "-C", build, "--no-rebuild", "--destdir", staging])
    pc = next(staging.rglob("attn.pc"))
    check_description(pc, staging)
    prefix = next(line.partition("=")[2] for line in pc.read_text().splitlines()
                  if line.startswith("prefix="))
    env = dict(os.environ, PKG_CONFIG_PATH=str(pc.parent))
    here = f"--define-variable=prefix={staging}{prefix}"
    source = scratch / "t.c"
    source.write_text(PROGRAM)
    libraries = pc.parent.parent

    def build_and_run(name, expect_bytes, *flags):
        described = shlex.split(run(["pkg-config", here, *flags, "--cflags", "--libs", "attn"],
                                    env=env))
        program = scratch / name
        double = ["-DATTN_DOUBLE"] if expect_bytes == 8 else []
        run([*compiler, "-std=c11", *double, source, "-o", program, *described])
        run_program(program, libraries, expect_bytes)

    build_and_run("shared", 4)
    build_and_run("shared64", 8)
    build_and_run("static-flags", 4, "--static")
    # Without the shared library -lattn is the static one.
    shared = [path for path in libraries.iterdir() if ".so" in path.name or ".dylib" in path.name]
    for path in shared:
        path.unlink()
    build_and_run("static", 4, "--static")
    build_and_run("static64", 8, "--static")


def check_subproject(root, compiler, scratch):
    (scratch / "subprojects").mkdir()
    (scratch / "subprojects/attn").symlink_to(root)
    (scratch / "t.c").write_text(PROGRAM)
    (scratch / "meson.build").write_text("""
project('user', 'c', default_options: ['c_std=c11'])
attn_dep = dependency('attn', fallback: ['attn', 'attn_dep'],
                      default_options: ['tests=disabled', 'tools=disabled'])
test('user', executable('user', 't.c', dependencies: attn_dep))
""")
    env = dict(os.environ, CC=shlex.join(compiler))
    run([*meson(), "setup", "--wrap-mode=forcefallback", scratch / "build", scratch], env=env)
    run([*meson(), "compile", "-C", scratch / "build"])
    run_program(scratch / "build/user", scratch / "build/subprojects/attn/src", 4)


def main(build, root, how, compiler):
    with tempfile.TemporaryDirectory(prefix="attn-install-") as scratch:
        try:
            if how == "installed":
                check_installed(build, compiler, pathlib.Path(scratch))
            else:
                check_subproject(root, compiler, pathlib.Path(scratch))
        except Failure as failure:
            print(failure)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:]))
