#!/usr/bin/env python3
"""The shapes of `attn bench` in PyTorch on the CPU, to hold attn against.

    tools/peer_torch.py                             PyTorch's own times
    attn bench --all --json > attn.json
    tools/peer_torch.py --against attn.json         with the ratio to attn in each row
    tools/peer_torch.py --attn build/tools/attn     the same, attn measured right before each row

A layer is four linear maps around F.scaled_dot_product_attention; the core is that function alone
on given q, k, v. Useful operations are counted as in `attn bench`: 4 B T^2 D for the attention,
half of it below a causal mask, 8 B T D^2 for the projections; forward+backward is 3.5 and 3 times
that. The ratio is PyTorch's time divided by attn's: above 1, attn is faster.
"""
import argparse
import json
import subprocess
import sys
import time

SHAPES = {"toy": (32, 32, 64, 4), "char": (16, 256, 384, 6), "seed": (8, 512, 512, 8),
          "gpt2": (4, 1024, 768, 12), "long8k": (1, 8192, 512, 8), "long32k": (1, 32768, 512, 8)}


def median(function, budget):
    """Median seconds: at least three runs, after one that warms up."""
    function()
    times, start = [], time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - start < budget and len(times) < 2000):
        before = time.perf_counter()
        function()
        times.append(time.perf_counter() - before)
    return sorted(times)[len(times) // 2]


def layer_case(torch, shape, causal):
    """Forward and forward+backward of the whole layer, as two functions."""
    batch, length, width, heads = shape

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width) for _ in range(4))

        def forward(self, x):
            q, k, v = (f(x).view(batch, length, heads, width // heads).transpose(1, 2)
                       for f in (self.q, self.k, self.v))
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.o(y.transpose(1, 2).reshape(batch, length, width))

    layer = Layer()
    x = torch.randn(batch, length, width, requires_grad=True)
    dy = torch.randn(batch, length, width)

    def forward():
        with torch.no_grad():
            layer(x)

    def step():
        layer.zero_grad(set_to_none=False)
        x.grad = None
        layer(x).backward(dy)
    return forward, step


def core_case(torch, shape, causal):
    """The same for attention alone, q, k, v contiguous as (B, H, T, d)."""
    batch, length, width, heads = shape
    q, k, v = (torch.randn(batch, heads, length, width // heads, requires_grad=True)
               for _ in range(3))
    dout = torch.randn(batch, heads, length, width // heads)

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def forward():
        with torch.no_grad():
            attend()

    def step():
        q.grad = k.grad = v.grad = None
        attend().backward(dout)
    return forward, step


def operations(what, shape, causal):
    batch, length, width, _ = shape
    attention = 4.0 * batch * length * length * width * (0.5 if causal else 1.0)
    projections = 8.0 * batch * length * width * width if what == "layer" else 0.0
    return attention + projections, 3.5 * attention + 3.0 * projections


def measured_by_attn(command, what, name, causal, threads):
    arguments = [command, "bench", what, "--shape", name, "--threads", str(threads), "--json"]
    run = subprocess.run(arguments + (["--causal"] if causal else []), stdout=subprocess.PIPE,
                         check=True)
    return json.loads(run.stdout)


def load(path):
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    return {(row["what"], row["shape"], row["causal"]): row
            for row in (rows if isinstance(rows, list) else [rows])}


def print_row(what, name, causal, forward, both, against):
    forward_work, both_work = operations(what, SHAPES[name], causal)
    line = (f"{what:5s} {name:8s} {'causal' if causal else 'full':6s}"
            f" {forward * 1e3:10.3f} {forward_work / forward / 1e9:7.1f}"
            f" {both * 1e3:10.3f} {both_work / both / 1e9:7.1f}")
    if against:
        line += (f" {against['forward_ms']:10.3f} {against['forward_backward_ms']:10.3f}"
                 f" {forward * 1e3 / against['forward_ms']:6.2f}"
                 f" {both * 1e3 / against['forward_backward_ms']:6.2f}")
    print(line, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="The shapes of `attn bench` in PyTorch on the CPU.")
    parser.add_argument("--threads", type=int, default=0, help="threads (default: PyTorch's)")
    parser.add_argument("--what", default="layer,core", help="layer, core or both (default)")
    parser.add_argument("--shapes", default="toy,char,seed,gpt2,long8k",
                        help="names separated by commas (default: all but long32k)")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each median")
    parser.add_argument("--against", metavar="FILE", help="output of attn bench --json")
    parser.add_argument("--attn", metavar="COMMAND", help="run this attn for each row")
    arguments = parser.parse_args()
    for name in arguments.shapes.split(","):
        if name not in SHAPES:
            parser.error(f"--shapes: '{name}' is none of {', '.join(SHAPES)}")
    for what in arguments.what.split(","):
        if what not in ("layer", "core"):
            parser.error(f"--what: '{what}' is neither layer nor core")
    return arguments


def main():
    arguments = parse_arguments()
    try:
        import torch
    except ImportError:
        sys.exit("peer_torch.py: PyTorch is not installed (Debian: python3-torch)")
    torch.manual_seed(0)
    if arguments.threads > 0:
        torch.set_num_threads(arguments.threads)
    threads = torch.get_num_threads()
    known = load(arguments.against) if arguments.against else {}
    print(f"PyTorch {torch.__version__}, float, {threads} threads; times in ms, rates in GFLOP/s")
    print("what  shape    mask      forward            forward+backward"
          + ("    attn: fwd    fwd+bwd  ratio of both" if known or arguments.attn else ""))
    for what in arguments.what.split(","):
        for name in arguments.shapes.split(","):
            for causal in (True, False):
                against = known.get((what, name, causal))
                if arguments.attn:
                    against = measured_by_attn(arguments.attn, what, name, causal, threads)
                case = layer_case if what == "layer" else core_case
                forward, step = case(torch, SHAPES[name], causal)
                print_row(what, name, causal, median(forward, arguments.budget),
                          median(step, arguments.budget), against)


main()
