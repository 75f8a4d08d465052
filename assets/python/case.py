#!/usr/bin/env python3
"""Runs a kept call of one op of attnscope with a function of yours, and compares what it returns.

    python3 CASE.py                     shows what the case holds
    python3 CASE.py my_file.py          calls my_file.run(case), compares every output
    python3 CASE.py my_file.py:my_op    the same with another name

    def run(case):
        return {"out": case["h"] + case["y"]}

case["NAME"] is a tensor as a numpy array, bf16 as float32; case.numbers has the numbers of the
call, case.cache("NAME") a cache. Return a dict with the outputs, each in its shape; of a cache the
rows as uint8 [rows, bytes] (state rows: float32) in the order of case.cache("NAME").slots.
--torch hands out torch tensors instead (bf16 stays bf16). Exit codes: 0 right, 1 wrong, 2 usage,
3 bad input, 4 a package is missing.
"""
import argparse
import importlib.util
import json
import math
import os
import sys

CASE = None  # set by 'attnscope case export'
OP = None  # whose outputs RULES judges, set by 'attnscope case export'
RULES = {}  # by output: tolerance class and mask, set by 'attnscope case export'

try:
    import numpy as np
except ImportError:
    np = None

ROW = {"latent": (576, 8), "index_fp8": (128, 4), "index_mxfp4": (64, 4)}  # payload, scales


def stop(code, text):
    print(text, file=sys.stderr)
    sys.exit(code)


def bf16_to_float(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def read_safetensors(path):
    """Tensors by name: numpy arrays, and the names of those that are bf16 (as uint16)."""
    types = {"F64": "<f8", "F32": "<f4", "BF16": "<u2", "U8": "u1", "I32": "<i4", "I64": "<i8"}
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    padding = header.pop("__metadata__", {}).get("attnscope.padding", "__pad_")
    tensors, bf16 = {}, set()
    for name, entry in header.items():
        if name.startswith(padding):
            continue
        first, end = entry["data_offsets"]
        array = np.frombuffer(data[first:end], dtype=types[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            bf16.add(name)
    return tensors, bf16


def e4m3_values():
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    value[(codes & 0x7F) == 0x7F] = np.nan
    return np.where(codes & 0x80, -value, value).astype(np.float32)


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def decode(record, rows):
    """Values of rows, float32 [rows, width]."""
    if record == "state":
        return rows
    payload, scale_bytes = ROW[record]
    codes, scales = rows[:, :payload], rows[:, payload : payload + scale_bytes]
    if record == "latent":
        blocks = np.exp2(scales[:, :7].astype(np.float32) - 127)
        plain = e4m3_values()[codes[:, :448]] * np.repeat(blocks, 64, axis=1)
        turned = np.ascontiguousarray(codes[:, 448:]).view("<u2")
        return np.concatenate([plain, bf16_to_float(turned)], axis=1)
    if record == "index_fp8":
        return e4m3_values()[codes] * np.ascontiguousarray(scales).view("<f4")
    signed = np.array(E2M1 + [-v for v in E2M1], dtype=np.float32)
    values = np.stack([signed[codes & 15], signed[codes >> 4]], axis=2).reshape(len(rows), 128)
    return values * np.repeat(np.exp2(scales.astype(np.float32) - 127), 32, axis=1)


class Cache:
    """Rows of a paged cache: slot = block * rows_per_block + row."""

    def __init__(self, info, slots, rows):
        self.record, self.rows_per_block = info["record"], info["rows_per_block"]
        self.blocks, self.width = info["blocks"], info["width"]
        self.slots, self.rows = slots, rows
        self.values = decode(self.record, rows)  # float32 [rows, width]

    def at(self, slots):
        """Values at slots of any shape; zeros for -1 and for rows that the case does not hold."""
        slots = np.asarray(slots, dtype=np.int64)
        out = np.zeros(slots.shape + (self.width,), dtype=np.float32)
        if len(self.slots) > 0:
            place = np.clip(np.searchsorted(self.slots, slots), 0, len(self.slots) - 1)
            found = self.slots[place] == slots
            out[found] = self.values[place[found]]
        return out


class Case:
    def __init__(self, path, torch=None):
        with open(path, encoding="utf-8") as file:
            self.info = json.load(file)
        folder = os.path.dirname(os.path.abspath(path))
        self.raw, self.bf16 = read_safetensors(os.path.join(folder, self.info["tensors"]))
        self.op = self.info["op"]
        self.numbers = {**self.info["integers"], **self.info["reals"]}
        unknown = self.info.get("unknown", [])
        self.inputs = self.info["inputs"]
        self.outputs = [name for name in self.info["outputs"] if name not in unknown]
        self.torch = torch

    def array(self, name):
        value = self.raw[name]
        return bf16_to_float(value) if name in self.bf16 else value

    def __getitem__(self, name):
        if name not in self.raw:
            raise KeyError(f"{name}: the case has {', '.join(self.inputs + self.outputs)}")
        value = self.array(name)
        if self.torch is None:
            return value
        tensor = self.torch.from_numpy(value.copy())
        return tensor.bfloat16() if name in self.bf16 else tensor

    def __contains__(self, name):
        return name in self.raw

    def cache(self, name):
        return Cache(self.info["caches"][name], self.raw[name + ".slots"], self.raw[name + ".rows"])

    def rope(self, name="rope"):
        """Positions and the cosines and sines at them, [positions, 32] each."""
        table = self.raw[name + ".rows"]
        return self.raw[name + ".positions"], table[:, :32], table[:, 32:]

    def expected(self, name):
        if name in self.info["caches"]:
            return self.raw[name + ".rows"], False
        return self.array(name), name in self.bf16


def to_numpy(value):
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() else value
        return value.numpy()
    return np.asarray(value)


def round_to_bf16(values):
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return np.where(np.isnan(values), np.float32("nan"), rounded.astype(np.uint32).view(np.float32))


def bf16_step(magnitude):
    exponent = np.frexp(magnitude)[1]
    return np.exp2(np.maximum(exponent - 8.0, -133.0))


def mask_of(case, rule, shape):
    """Elements that hold values."""
    mask = np.ones(shape, dtype=bool)
    if "slots" in rule:
        mask &= (case.raw[rule["slots"]] >= 0).reshape((-1,) + (1,) * (len(shape) - 1))
    if "lens" in rule:
        lens = case.raw[rule["lens"]].reshape((-1,) + (1,) * (len(shape) - 1))
        mask &= np.arange(shape[-1]) < lens
    return mask


def members(row, length):
    """(entries of a row of choices, what is wrong with its form or None)."""
    entries = [int(e) for e in row if e >= 0]
    if any(e >= length or e < -1 for e in row):
        return entries, f"an entry is outside 0..{length - 1}"
    if any(e >= 0 for e in row[len(entries):]):
        return entries, "an entry comes after a -1"
    if len(set(entries)) < len(entries):
        return entries, "an entry is selected twice"
    if len(entries) != min(len(row), length):
        return entries, f"{len(entries)} entries, {min(len(row), length)} visible and wanted"
    return entries, None


def swap_used(scores, length, lost, taken, score_rel):
    """Margin of the best entry left out over the worst taken, in units of the score tolerance."""
    def ranked(entry):
        score = float(scores[entry])
        return -math.inf if math.isnan(score) else score

    seen = np.abs(scores[:length].astype(np.float64))
    scale = float(np.max(seen, where=np.isfinite(seen), initial=0))
    best, worst = max(map(ranked, lost)), min(map(ranked, taken))
    margin = 0.0 if best == worst else max(0.0, best - worst)
    allowed = score_rel * scale
    return margin, 0.0 if margin == 0 else margin / allowed if allowed > 0 else math.inf


def compare_sets(case, rule, value, expected):
    """Order does not matter; entries whose scores tie within the tolerance may stand in."""
    logits, lens = case.raw["logits"], case.raw["lens"]
    ties = wrong = 0
    text = ""
    for t, (row, other) in enumerate(zip(value, expected)):
        length = int(lens[t])
        ours, complaint = members(row, length)
        theirs, _ = members(other, length)
        taken, lost = sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))
        if complaint is None and not taken and not lost:
            continue
        used = math.inf
        if complaint is None and len(taken) == len(lost):
            margin, used = swap_used(logits[t], length, lost, taken, rule["score_rel"])
            complaint = f"has {taken[:5]} for {lost[:5]}, margin {margin:.3g}"
        if used <= 1:
            ties += 1
            continue
        wrong += 1
        text = text or f"; row {t}: {complaint or f'lacks {lost[:5]}'}"
    if wrong:
        return False, f"{wrong} of {len(expected)} rows differ{text}"
    return True, f"the same sets, {ties} rows by a tie of scores" if ties else "the same sets"


def compare(case, name, value):
    """(right, sentence): every element must keep one of the bounds; None: it has no element."""
    rule = RULES.get(name, {})
    expected, bf16 = case.expected(name)
    value = to_numpy(value)
    if value.shape != expected.shape:
        return False, f"has shape {list(value.shape)}, expected {list(expected.shape)}"
    if rule.get("top_k") and len(expected) > 0:
        return compare_sets(case, rule, value, expected)
    mask = mask_of(case, rule, expected.shape)
    if not mask.any():
        return None, "no element of it is compared"
    if bf16:
        value = round_to_bf16(value.astype(np.float32))
    a, b = value.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | ~mask
    differing = int((~same).sum())
    if differing == 0:
        return True, "equal"
    if rule.get("exact"):
        first = tuple(int(i) for i in np.argwhere(~same)[0])
        found = f"{value[first]}, not {expected[first]}"
        return False, f"{differing} differ, the first at {first}: {found}"
    finite = np.isfinite(a) & np.isfinite(b)
    difference = np.where(finite, np.abs(a - b), np.where(same, 0, math.inf))
    row_max = np.max(np.where(np.isfinite(b) & mask, np.abs(b), 0), axis=-1, keepdims=True)
    bound = np.full(b.shape, rule.get("abs", 0.0))
    bound = np.maximum(bound, rule.get("rel", 0) * np.abs(np.where(finite, b, 0)))
    bound = np.maximum(bound, rule.get("row_max", 0) * row_max)
    if bf16 and rule.get("bf16_ulp"):
        largest = np.where(finite, np.maximum(np.abs(a), np.abs(b)), 1)
        bound = np.maximum(bound, rule["bf16_ulp"] * bf16_step(largest))
    beyond = mask & ~same & ~(difference <= bound)
    text = f"{differing} of {int(mask.sum())} differ, max abs {np.max(difference[mask]):.3g}"
    if "cosine" in rule and not beyond.any():
        x, y = a[mask & finite], b[mask & finite]
        cosine = 1 - 2 * (x * y).sum() / max((x * x + y * y).sum(), 1e-300)
        if cosine > rule["cosine"]:
            return False, f"{text}, 1-cos {cosine:.3g} > {rule['cosine']:.3g}"
    if not beyond.any():
        return True, text + ", within the tolerance"
    worst = np.unravel_index(np.argmax(np.where(beyond, difference, -1)), difference.shape)
    place = tuple(int(i) for i in worst)
    return False, f"{text}, {int(beyond.sum())} beyond; at {place}: {a[worst]}, not {b[worst]}"


def show(case):
    origin = case.info["origin"]
    print(f"{case.op}, from {origin['from']}, outputs of lane {origin['lane']}")
    for name, value in case.numbers.items():
        print(f"  {name} = {value}")
    for side, names in (("in ", case.inputs), ("out", case.outputs)):
        for name in names:
            if name in case.info["caches"]:
                cache = case.cache(name)
                print(f"  {side} {name:<14} cache, {len(cache.slots)} rows of {cache.record}")
            else:
                kind = "bf16" if name in case.bf16 else case.raw[name].dtype
                print(f"  {side} {name:<14} {kind} {list(case.raw[name].shape)}")


def load_function(text):
    path, _, name = text.partition(":")
    if not os.path.isfile(path):
        stop(2, f"{path}: no such file; name a Python file, or FILE:FUNCTION")
    spec = importlib.util.spec_from_file_location("users_function", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name or "run"):
        stop(2, f"{path}: has no function {name or 'run'}")
    return getattr(module, name or "run")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("function", nargs="?", help="FILE.py or FILE.py:FUNCTION")
    parser.add_argument("--case", help="another case of the same op")
    parser.add_argument("--torch", action="store_true", help="hand out torch tensors")
    options = parser.parse_args()
    if np is None:
        stop(4, "numpy is missing: pip install numpy")
    torch = None
    if options.torch:
        try:
            import torch
        except ImportError:
            stop(4, "torch is missing: pip install torch, or leave --torch out")
    path = options.case or os.path.join(os.path.dirname(os.path.abspath(__file__)), CASE)
    try:
        case = Case(path, torch)
    except (OSError, ValueError, KeyError) as error:
        stop(3, f"{path}: cannot be read: {error}")
    if OP is not None and case.op != OP:
        stop(2, f"{path}: is a call of {case.op}, and this script judges {OP}; write one for it: "
                f"attnscope case export --python {path}")
    if not options.function:
        show(case)
        return 0
    result = load_function(options.function)(case)
    if not isinstance(result, dict):
        kind = type(result).__name__
        stop(2, f"the function returned a {kind}; expected a dict of {', '.join(case.outputs)}")
    unknown = [name for name in result if name not in case.outputs]
    if unknown:
        stop(2, f"{unknown[0]} is no output; outputs: {', '.join(case.outputs)}")
    verdicts = []
    for name in case.outputs:
        if name not in result:
            print(f"  {name:<14} not returned, not compared")
            continue
        good, text = compare(case, name, result[name])
        verdicts.append(good)
        verdict = "not compared" if good is None else "right" if good else "wrong"
        print(f"  {name:<14} {verdict}: {text}")
    right = True in verdicts and False not in verdicts
    print("right" if right else "wrong" if False in verdicts else "not compared")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
