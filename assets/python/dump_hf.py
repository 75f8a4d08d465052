#!/usr/bin/env python3
"""Dumps what the attention of transformers' DeepseekV4 reads and writes, for `attnscope case import`.

    python3 dump_hf.py -o DUMP.pt                   # a tiny model with seeded weights
    python3 dump_hf.py -o DUMP.pt --model FOLDER    # a checkpoint; --layers 0,2,3

needs torch and transformers. Beside DUMP.pt it writes DUMP.config.json, which --model takes:

    attnscope case import hf DUMP.pt -o DUMP.acap --model DUMP.config.json

One prompt, one forward pass without a cache: every module's tensors keep their own names, with
.input, .output and .weight behind. Attention is the eager one; its mask becomes the list of keys
that each token sees.
"""
import argparse
import json
import os
import sys


def tiny_config(transformers):
    """As attnscope's preset tiny: every type of layer, published row widths."""
    return transformers.DeepseekV4Config(
        vocab_size=256, hidden_size=512, moe_intermediate_size=64, num_hidden_layers=4,
        num_attention_heads=8, head_dim=512, q_lora_rank=128, num_experts_per_tok=2,
        n_routed_experts=4, o_groups=2, o_lora_rank=64, index_n_heads=8, index_head_dim=128,
        index_topk=512, sliding_window=128, num_hash_layers=0, hc_mult=2,
        compress_ratios=[0, 4, 128, 4],
        rope_parameters={"rope_type": "yarn", "factor": 16.0, "beta_fast": 32, "beta_slow": 1,
                         "original_max_position_embeddings": 65536})


def seed_weights(torch, model):
    """Values of the size that trained ones have; transformers leaves some uninitialised."""
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if weight.dim() < 2 and "norm" in name:
            value = torch.ones_like(weight) + 0.1 * torch.randn_like(weight)
            weight.data = value.bfloat16().to(weight.dtype)
        elif weight.dim() < 2:
            weight.data = 0.5 * torch.randn_like(weight)
        else:
            weight.data = torch.randn_like(weight) * weight.shape[-1] ** -0.5


def settings_of(config):
    """What attnscope reads of a model, under the names of published configurations."""
    ratios = {"sliding_attention": 0}
    ratios.update(config.compress_rates)
    rope = config.rope_parameters["compress"]
    out = {
        "model_type": "deepseek_v4", "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads, "head_dim": config.head_dim,
        "qk_rope_head_dim": config.qk_rope_head_dim, "q_lora_rank": config.q_lora_rank,
        "o_lora_rank": config.o_lora_rank, "o_groups": config.o_groups,
        "sliding_window": config.sliding_window,
        "compress_ratios": [ratios[t] for t in config.layer_types],
        "index_n_heads": config.index_n_heads, "index_head_dim": config.index_head_dim,
        "index_topk": config.index_topk, "rope_theta": config.rope_parameters["main"]["rope_theta"],
        "compress_rope_theta": rope["rope_theta"], "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
    }
    if rope["rope_type"] == "yarn":
        out["rope_scaling"] = {
            "type": "yarn", "factor": rope["factor"], "beta_fast": rope.get("beta_fast", 32),
            "beta_slow": rope.get("beta_slow", 1),
            "original_max_position_embeddings": rope["original_max_position_embeddings"]}
    return out


class Dump:
    def __init__(self, torch, layers):
        self.torch, self.layers, self.tensors, self.names = torch, layers, {}, {}

    def keep(self, name, tensor):
        self.tensors[name] = tensor.detach().cpu().contiguous().clone()

    def wants(self, name):
        parts = name.split(".")
        if parts[:2] != ["model", "layers"] or len(parts) < 4:
            return name in ("model.norm", "lm_head")
        layer = int(parts[2])
        inside = "self_attn" in parts or parts[-1] == "input_layernorm"
        return inside and (not self.layers or layer in self.layers)

    def hook(self, model):
        for name, module in model.named_modules():
            self.names[module] = name
            if not self.wants(name):
                continue
            for part, weight in module.named_parameters(recurse=False):
                self.keep(f"{name}.{part}", weight)
            if not any(True for _ in module.children()) or name.endswith((".scorer", ".indexer")):
                module.register_forward_hook(self.seen)

    def seen(self, module, inputs, output):
        name = self.names[module]
        for kind, value in (("input", inputs[0] if inputs else None), ("output", output)):
            if isinstance(value, self.torch.Tensor):
                self.keep(f"{name}.{kind}", value)

    def attention(self, eager):
        def traced(module, query, key, value, attention_mask, scaling, **kwargs):
            out = eager(module, query, key, value, attention_mask, scaling, **kwargs)
            name = self.names[module]
            if self.wants(name):
                torch, tokens, keys = self.torch, query.shape[2], key.shape[2]
                seen = torch.ones(tokens, keys, dtype=torch.bool)
                if attention_mask is not None:
                    seen = attention_mask[0, 0].cpu().float() > -1e30
                lens = seen.sum(-1)
                order = torch.argsort(~seen, dim=-1, stable=True)[:, : int(lens.max())]
                order[torch.arange(order.shape[1])[None] >= lens[:, None]] = -1
                self.keep(f"{name}.query_states", query)
                self.keep(f"{name}.key_states", key)
                self.keep(f"{name}.key_indices", order.int())
                self.keep(f"{name}.key_lens", lens.int())
                self.keep(f"{name}.attn_output", out[0])
            return out

        return traced


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", required=True, help="DUMP.pt")
    parser.add_argument("--model", help="a folder with config.json and weights (a tiny model)")
    parser.add_argument("--layers", help="0,2,3 (all)")
    parser.add_argument("--tokens", type=int, default=300, help="of the prompt (300)")
    options = parser.parse_args()
    try:
        import torch
        import transformers
        from transformers.models.deepseek_v4 import modeling_deepseek_v4 as code
    except ImportError as missing:
        sys.exit(f"{missing}: install torch, and transformers with deepseek_v4 in it")
    if options.model:
        model = transformers.DeepseekV4ForCausalLM.from_pretrained(
            options.model, dtype=torch.bfloat16, attn_implementation="eager")
    else:
        config = tiny_config(transformers)
        config._attn_implementation = "eager"
        model = code.DeepseekV4ForCausalLM(config)
        seed_weights(torch, model)
        # As published ones: matrices in bf16, norms, sinks, gates and angles in fp32.
        for name, weight in model.named_parameters():
            if weight.dim() >= 2 and "_hc." not in name and "position_bias" not in name:
                weight.data = weight.data.to(torch.bfloat16)
    model.eval()
    dump = Dump(torch, [int(n) for n in options.layers.split(",")] if options.layers else [])
    dump.hook(model)
    code.eager_attention_forward = dump.attention(code.eager_attention_forward)
    torch.manual_seed(2)
    ids = torch.randint(0, model.config.vocab_size, (1, options.tokens))
    with torch.no_grad():
        model(input_ids=ids, use_cache=False)
    dump.keep("input_ids", ids)
    positions = torch.arange(options.tokens)
    dump.keep("position_ids", positions)
    # As the model computes with them: in its own type.
    for kind in ("main", "compress"):
        like = torch.zeros(1, dtype=model.get_input_embeddings().weight.dtype)
        cos, sin = model.model.rotary_emb(like, position_ids=positions[None], layer_type=kind)
        dump.keep(f"rotary_table.{kind}", torch.cat([cos[0], sin[0]], dim=-1))
    for ratio in sorted({r for r in settings_of(model.config)["compress_ratios"] if r > 0}):
        dump.keep(f"compressed_lens.{ratio}", ((positions + 1) // ratio).int())
    torch.save(dump.tensors, options.output)
    settings = os.path.splitext(options.output)[0] + ".config.json"
    with open(settings, "w") as file:
        file.write(json.dumps(settings_of(model.config), indent=1) + "\n")
    print(f"{options.output}: {len(dump.tensors)} tensors; {settings}: the model")


if __name__ == "__main__":
    main()
