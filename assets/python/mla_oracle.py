#!/usr/bin/env python3
"""Holds attention of DeepSeek-V3 and V3.2 against Hugging Face's own modules.

    mla_oracle.py [--program PATH] [--kinds v3,v3-yarn,v3.2,v3.2-yarn] [--keep FOLDER]

Needs torch and transformers; kinds that the installed transformers has not are named and left out.
For each kind it makes a small model with random weights, saves it as a checkpoint, has attnscope
compute it (tap-export of ref.exact, in float64; run, in which ref.model and ref.exact agree within
1e-9 of a row), and calls the attention modules of the same layers in float64 on the same inputs.
Where Hugging Face goes to float32 (norms, softmax, rotary tables, scores) it is given float64.
Exit code 1 where an output is off by more than 2e-6 of the largest value of its row, or where a
token's selection is another set.

Hugging Face's indexer has neither the Hadamard transform nor FP8, and ref.exact rounds nothing; the
transform is orthogonal, so that it leaves scores as they are.
"""

import contextlib
import copy
import sys

import numpy
import torch
import transformers
from dense_oracle import BOUND, main, ours
from transformers import modeling_rope_utils

TOKENS = 150
SELECTED = 64
COMMON = dict(
    hidden_size=256,
    intermediate_size=64,
    moe_intermediate_size=32,
    num_hidden_layers=3,
    first_k_dense_replace=3,
    num_attention_heads=8,
    num_key_value_heads=8,
    n_routed_experts=8,
    q_lora_rank=128,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    qk_nope_head_dim=32,
    v_head_dim=32,
    vocab_size=256,
    max_position_embeddings=163840,
    attention_bias=False,
    tie_word_embeddings=True,
)
INDEXER = dict(index_n_heads=8, index_head_dim=128, index_topk=SELECTED)
YARN = dict(
    rope_type="yarn",
    rope_theta=10000.0,
    factor=40.0,
    original_max_position_embeddings=64,
    beta_fast=32.0,
    beta_slow=1.0,
    mscale=1.0,
    mscale_all_dim=1.0,
)
PLAIN = dict(rope_type="default", rope_theta=10000.0)
KINDS = {
    "v3": ("DeepseekV3", dict(rope_parameters=PLAIN)),
    "v3-yarn": ("DeepseekV3", dict(rope_parameters=YARN)),
    "v3.2": ("DeepseekV32", dict(rope_parameters=PLAIN, **INDEXER)),
    "v3.2-yarn": ("DeepseekV32", dict(rope_parameters=YARN, **INDEXER)),
}


class Float64:
    """torch as a module of transformers sees it, with float64 by the name of float32."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


@contextlib.contextmanager
def in_float64(model):
    modules = [sys.modules[type(model).__module__], modeling_rope_utils]
    to_float = torch.Tensor.float
    for module in modules:
        module.torch = Float64()
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.Tensor.float = to_float
        for module in modules:
            module.torch = torch


def make_model(kind):
    name, own = KINDS[kind]
    if not hasattr(transformers, name + "Config"):
        return None
    config = getattr(transformers, name + "Config")(**{**COMMON, **own})
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    model = getattr(transformers, name + "ForCausalLM")(config)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            norm = "norm" in key
            weight.normal_(0, 0.1 if norm else weight.shape[-1] ** -0.5)
            if norm and not key.endswith("bias"):
                weight.add_(1)
            weight.copy_(weight.to(torch.bfloat16))
    return model


def use_rotary_in_float64(model):
    """The frequencies anew: the module keeps them in float32."""
    embedding = model.model.rotary_emb
    make = embedding.compute_default_rope_parameters
    if embedding.rope_type != "default":
        make = modeling_rope_utils.ROPE_INIT_FUNCTIONS[embedding.rope_type]
    frequencies, embedding.attention_scaling = make(model.config)
    embedding.register_buffer("inv_freq", frequencies, persistent=False)


def attend(model, index, x):
    """Output of a layer's attention [T, hidden] and, of V3.2, what it selects [T, K]."""
    attention = model.model.layers[index].self_attn
    count = x.shape[1]
    positions = torch.arange(count)[None]
    key = torch.arange(count)
    mask = torch.zeros(1, 1, count, count, dtype=torch.float64)
    mask.masked_fill_(key[None, :] > key[:, None], float("-inf"))
    selected = []
    hook = None
    if hasattr(attention, "indexer"):
        hook = attention.indexer.register_forward_hook(lambda *a: selected.append(a[2][0]))
    with torch.no_grad():
        y = attention(
            hidden_states=x,
            attention_mask=mask,
            position_ids=positions,
            position_embeddings=model.model.rotary_emb(x, positions),
        )[0][0]
    if hook is None:
        return y.numpy(), None
    hook.remove()
    return y.numpy(), selected[0].numpy()


def other_sets(own, theirs):
    """Tokens that select another set of earlier tokens than attnscope: [T, K] each, -1 = none."""
    found = []
    for token, (a, b) in enumerate(zip(own, theirs)):
        # Of a token with fewer than K before it, Hugging Face lists masked ones too.
        if set(a[a <= token].tolist()) != set(b[b >= 0].tolist()):
            found.append(token)
    return found


def of_layer(given, index, name):
    found = [v for k, v in given.items() if f"layers.{index}." in k and name in k]
    if not found:
        sys.exit(f"no {name} of layer {index} among the taps: {', '.join(sorted(given))}")
    return found[0]


def check(kind, program, folder):
    model = make_model(kind)
    if model is None:
        print(f"{kind}: transformers {transformers.__version__} has no such model")
        return None
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder / kind)
    model = model.to(torch.float64).eval()
    taps = "attn_norm.y,o_proj.y"
    if "index_topk" in KINDS[kind][1]:
        taps += ",indexer_topk.indices"
    given, said = ours(program, folder, kind, TOKENS, 64, taps)
    worst, apart = 0.0, []
    with in_float64(model):
        use_rotary_in_float64(model)
        for index in range(len(model.model.layers)):
            x = of_layer(given, index, "attn_norm")[:TOKENS]
            y = of_layer(given, index, "o_proj")[:TOKENS]
            own, selected = attend(model, index, torch.tensor(x[None].copy()))
            off = numpy.abs(own - y).max(axis=1) / numpy.abs(own).max(axis=1)
            worst = max(worst, float(off.max()))
            if selected is not None:
                theirs = of_layer(given, index, "indexer_topk")[:TOKENS]
                apart += [(index, token) for token in other_sets(selected, theirs)]
    print(f"{kind}: off by {worst:.2e}; ref.model off from ref.exact by {said['worst']:.2e}")
    if apart:
        print(f"  other selections: {len(apart)}, the first in layer, token {apart[0]}")
    return worst <= BOUND and not apart and not said.get("says")


if __name__ == "__main__":
    main(__doc__, KINDS, check)
