"""A mixture-of-experts layer in PyTorch: index_select, then matrix products expert by expert. Prints
the median milliseconds of forward and backward together, and what PyTorch multiplies with."""
import argparse
import os
import re
import statistics
import time

import torch
import torch.nn.functional as F

flags = argparse.ArgumentParser()
for name in ("tokens", "width", "hidden", "experts", "top_k", "threads", "rounds"):
    flags.add_argument("--" + name, type=int, required=True)
a = flags.parse_args()
torch.set_num_threads(a.threads)
torch.manual_seed(1)
gate = (torch.randn(a.experts, a.width) / a.width**0.5).requires_grad_()
w1 = [(torch.randn(a.hidden, a.width) / a.width**0.5).requires_grad_() for _ in range(a.experts)]
b1 = [torch.zeros(a.hidden, requires_grad=True) for _ in range(a.experts)]
w2 = [(torch.randn(a.width, a.hidden) / a.hidden**0.5).requires_grad_() for _ in range(a.experts)]
b2 = [torch.zeros(a.width, requires_grad=True) for _ in range(a.experts)]
x = torch.randn(a.tokens, a.width, requires_grad=True)
dy = torch.randn(a.tokens, a.width)
leaves = [x, gate, *w1, *b1, *w2, *b2]


def step():
    weight, expert = torch.softmax(x @ gate.t(), dim=1).topk(a.top_k, dim=1)
    weight = weight / weight.sum(dim=1, keepdim=True)
    y = torch.zeros_like(x)
    for e in range(a.experts):
        token, choice = torch.where(expert == e)
        rows = F.gelu(F.linear(x.index_select(0, token), w1[e], b1[e]))
        rows = F.linear(rows, w2[e], b2[e]) * weight[token, choice].unsqueeze(1)
        y = y.index_add(0, token, rows)
    return torch.autograd.grad(y, leaves, dy, allow_unused=True)


times = []
for i in range(a.rounds + 2):
    start = time.perf_counter()
    step()
    times.append((time.perf_counter() - start) * 1e3)
with open("/proc/self/maps") as maps:  # what is loaded, whatever it was built with
    files = {os.path.basename(line.split()[-1]) for line in maps if re.search("blas|mkl", line)}
print(f"{statistics.median(times[2:]):.3f} torch {torch.__version__}: {', '.join(sorted(files))[:160]}")
