#!/usr/bin/env python3
"""Holds attention of dense models against Hugging Face's own modules.

    dense_oracle.py [--program PATH] [--keep FOLDER]
                    [--kinds llama,mistral,qwen3,gemma3_text,gpt_oss,bloom,bert,vit,t5]

Needs torch and transformers; kinds that the installed transformers has not are named and left out.
For each kind it makes a small model with random weights, saves it as a checkpoint, has attnscope
compute it (tap-export of ref.exact, in float64; run, in which ref.model and ref.exact agree within
1e-9 of a row), and calls the attention modules of the same layers in float64 on the same inputs.
Of BLOOM, BERT and ViT, whose norms are others, it is the attention alone: its weights without their
biases, under the names of Llama. gpt-oss is without its biases and YaRN. T5 is saved by transformers
itself, and attention of its encoder, of its decoder and across is called, each with its bias.
Exit code 1 where an output is off by more than 2e-6 of the largest value of its row.
"""

import argparse
import copy
import inspect
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

BOUND = 2e-6
TOKENS = 70
COMMON = dict(
    hidden_size=128,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=8,
    num_key_value_heads=2,
    vocab_size=256,
    max_position_embeddings=4096,
    attention_bias=False,
    tie_word_embeddings=True,
)
KINDS = {
    "llama": ("Llama", dict(rope_theta=10000.0)),
    "mistral": ("Mistral", dict(sliding_window=24)),
    "qwen3": (
        "Qwen3",
        dict(head_dim=64, use_sliding_window=True, sliding_window=20, max_window_layers=1),
    ),
    "gemma3_text": (
        "Gemma3",
        dict(head_dim=32, sliding_window=16, num_hidden_layers=7, query_pre_attn_scalar=40),
    ),
    "gpt_oss": (
        "GptOss",
        dict(
            head_dim=16,
            num_hidden_layers=4,
            sliding_window=24,
            layer_types=["sliding_attention", "full_attention"] * 2,
            rope_parameters=dict(rope_type="default", rope_theta=150000.0),
            num_local_experts=2,
            num_experts_per_tok=1,
        ),
    ),
}


def make_model(kind):
    name, own = KINDS[kind]
    config_name = name + ("TextConfig" if kind == "gemma3_text" else "Config")
    if not hasattr(transformers, config_name):
        return None
    config = getattr(transformers, config_name)(**{**COMMON, **own})
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    model = getattr(transformers, name + "ForCausalLM")(config)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            spread = 0.1 if "norm" in key else weight.shape[-1] ** -0.5
            weight.normal_(0, spread)
            if "norm" in key and kind != "gemma3_text":
                weight.add_(1)
            weight.copy_(weight.to(torch.bfloat16))
    return model


def windows(model):
    """Tokens that each layer sees, 0 = all, as its own module says."""
    found = []
    for layer in model.model.layers:
        attention = layer.self_attn
        window = getattr(attention, "sliding_window", None)
        if window is None and getattr(model.config, "model_type", "") == "mistral":
            window = model.config.sliding_window
        found.append(window or 0)
    return found


def rotary(model, layer, x, positions):
    """cos and sin as the model hands them to a layer."""
    modules = model.model
    local = getattr(layer.self_attn, "is_sliding", False)
    if hasattr(modules, "rotary_emb_local"):
        return (modules.rotary_emb_local if local else modules.rotary_emb)(x, positions)
    if hasattr(modules, "rotary_emb"):
        embedding = modules.rotary_emb
        if "layer_type" in inspect.signature(embedding.forward).parameters:
            return embedding(x, positions, "sliding_attention" if local else "full_attention")
        return embedding(x, positions)
    return None  # older versions: each layer has its own


def attend(model, index, x):
    layer = model.model.layers[index]
    count = x.shape[1]
    positions = torch.arange(count)[None]
    key = torch.arange(count)
    seen = key[None, :] <= key[:, None]
    window = windows(model)[index]
    if window:
        seen &= key[None, :] > key[:, None] - window
    mask = torch.zeros(1, 1, count, count, dtype=torch.float64)
    mask.masked_fill_(~seen, float("-inf"))
    arguments = dict(hidden_states=x, attention_mask=mask)
    taken = inspect.signature(layer.self_attn.forward).parameters
    if "position_embeddings" in taken:
        arguments["position_embeddings"] = rotary(model, layer, x, positions)
    if "position_ids" in taken:
        arguments["position_ids"] = positions
    with torch.no_grad():
        return layer.self_attn(**arguments)[0]


def call(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def tensors(path):
    """Tensors of a safetensors file by name, without the package of that name."""
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    kinds = {"F64": "<f8", "F32": "<f4", "I32": "<i4", "I64": "<i8"}
    found = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] not in kinds:
            continue
        begin, end = entry["data_offsets"]
        raw = data[8 + size + begin : 8 + size + end]
        found[name] = numpy.frombuffer(raw, kinds[entry["dtype"]]).reshape(entry["shape"])
    return found


def ours(program, folder, kind, tokens, budget, taps):
    """Taps of ref.exact for the model in the folder, and what ref.model says."""
    scenario = folder / f"{kind}.json"
    scenario.write_text(
        json.dumps(
            {
                "version": 1,
                "model": {"config": str(folder / kind)},
                "pool_blocks": 200,
                "token_budget": budget,
                "decode_steps": 1,
                "requests": [
                    {
                        "name": "r",
                        "text": "".join(chr(97 + i * i % 26) for i in range(tokens)),
                        "max_new_tokens": 1,
                    }
                ],
            }
        )
    )
    out = folder / f"{kind}.safetensors"
    call(program, "tap-export", str(scenario), "--lane", "ref.exact", "--taps", taps,
         "-o", str(out))
    report = json.loads(call(program, "run", str(scenario), "--json"))
    return tensors(out), report["ref_model"]


def apart(own, y):
    return float((numpy.abs(own - y).max(axis=1) / numpy.abs(own).max(axis=1)).max())


def said_of(kind, worst, said):
    print(f"{kind}: off by {worst:.2e}; ref.model off from ref.exact by {said['worst']:.2e}")
    return worst <= BOUND and not said.get("says")


def of_layer(given, index, name):
    return next(v for k, v in given.items() if f"layers.{index}." in k and name in k)[:TOKENS]


def fill(*projections):
    """Random weights without biases, in bf16."""
    with torch.no_grad():
        for projection in projections:
            projection.weight.normal_(0, projection.weight.shape[1] ** -0.5)
            projection.weight.copy_(projection.weight.to(torch.bfloat16))
            if projection.bias is not None:
                projection.bias.zero_()


def bloom():
    """Attention with ALiBi. Of each head its query, key and value lie one behind the other."""
    from transformers.models.bloom import modeling_bloom

    config = transformers.BloomConfig(n_head=12, n_layer=2, hidden_size=192)
    heads, hidden = config.n_head, config.hidden_size
    layers = []
    for index in range(config.n_layer):
        block = modeling_bloom.BloomAttention(config, index).eval()
        fill(block.query_key_value, block.dense)
        fused = block.query_key_value.weight.detach().view(heads, 3, hidden // heads, hidden)
        layers.append((block, [fused[:, i].reshape(hidden, hidden) for i in range(3)]
                       + [block.dense.weight.detach()]))

    def attend(block, x):
        count = x.shape[1]
        alibi = modeling_bloom.build_alibi_tensor(torch.ones(1, count), heads, torch.float64)
        mask = torch.full((count, count), float("-inf"), dtype=torch.float64).triu(1)[None, None]
        return block(x, torch.zeros_like(x), alibi, mask)[0]

    return hidden, heads, dict(alibi=True), layers, attend


def bert():
    """Both ways. What stands behind the output's matrix is a LayerNorm, which is left out."""
    from transformers.models.bert import modeling_bert

    config = transformers.BertConfig(hidden_size=128, num_attention_heads=4, num_hidden_layers=2)
    config._attn_implementation = "eager"
    layers = []
    for index in range(2):
        block = torch.nn.ModuleList(
            [modeling_bert.BertSelfAttention(config, layer_idx=index), torch.nn.Linear(128, 128)]
        ).eval()
        projections = [block[0].query, block[0].key, block[0].value, block[1]]
        fill(*projections)
        layers.append((block, [p.weight.detach() for p in projections]))
    return 128, 4, dict(is_causal=False), layers, lambda block, x: block[1](block[0](x)[0])


def vit():
    """Both ways, heads of 72."""
    from transformers.models.vit import modeling_vit

    config = transformers.ViTConfig(hidden_size=144, num_attention_heads=2, num_hidden_layers=2)
    config._attn_implementation = "eager"
    layers = []
    for _ in range(2):
        block = modeling_vit.ViTAttention(config).eval()
        projections = [block.q_proj, block.k_proj, block.v_proj, block.o_proj]
        fill(*projections)
        layers.append((block, [p.weight.detach() for p in projections]))
    return 144, 2, dict(is_causal=False), layers, lambda block, x: block(x)[0]


FOREIGN = {"bloom": bloom, "bert": bert, "vit": vit}


def check_foreign(kind, program, folder):
    from safetensors.torch import save_file

    torch.manual_seed(1)
    try:
        hidden, heads, own_keys, layers, attend_own = FOREIGN[kind]()
    except (ImportError, AttributeError) as missing:
        print(f"{kind}: transformers {transformers.__version__}: {missing}")
        return None
    whole = {"model.embed_tokens.weight": torch.randn(256, hidden)}
    whole["model.norm.weight"] = torch.ones(hidden)
    for index, (_, matrices) in enumerate(layers):
        layer = f"model.layers.{index}."
        whole[f"{layer}input_layernorm.weight"] = torch.ones(hidden)
        for name, matrix in zip(("q_proj", "k_proj", "v_proj", "o_proj"), matrices):
            whole[f"{layer}self_attn.{name}.weight"] = matrix
    (folder / kind).mkdir(exist_ok=True)
    save_file(
        {k: v.to(torch.bfloat16).contiguous() for k, v in whole.items()},
        str(folder / kind / "model.safetensors"),
    )
    config = dict(
        architectures=["LlamaForCausalLM"],
        hidden_size=hidden,
        model_type="llama",
        num_attention_heads=heads,
        num_hidden_layers=len(layers),
        tie_word_embeddings=True,
        vocab_size=256,
        **own_keys,
    )
    (folder / kind / "config.json").write_text(json.dumps(config))
    # Without a cache a prompt is computed at once.
    budget = TOKENS if own_keys.get("is_causal") is False else 32
    given, said = ours(program, folder, kind, TOKENS, budget, "attn_norm.y,o_proj.y")
    worst = 0.0
    for index, (block, _) in enumerate(layers):
        x = torch.tensor(of_layer(given, index, "attn_norm").copy())[None]
        with torch.no_grad():
            own = attend_own(block.to(torch.float64), x)[0]
        worst = max(worst, apart(own.numpy(), of_layer(given, index, "o_proj")))
    return said_of(kind, worst, said)


def check_t5(kind, program, folder):
    """All but the last tokens of the request are the source."""
    begins = 7
    config = transformers.T5Config(
        d_model=128, d_kv=32, d_ff=64, num_heads=4, num_layers=2, num_decoder_layers=2,
        vocab_size=256, relative_attention_num_buckets=32, relative_attention_max_distance=48,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    model = transformers.T5ForConditionalGeneration(config)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            spread = 0.1 if "norm" in key else weight.shape[-1] ** -0.5
            spread = 1.0 if "relative_attention_bias" in key else spread
            weight.normal_(0, spread * (0.5 if key.endswith("Attention.k.weight") else 1))
            if "norm" in key:
                weight.add_(1)
            weight.copy_(weight.to(torch.bfloat16))
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder / kind)
    own = json.loads((folder / kind / "config.json").read_text())
    (folder / kind / "config.json").write_text(json.dumps({**own, "attnscope_decoder_prompt": begins}))
    model = model.to(torch.float64).eval()
    given, said = ours(program, folder, kind, TOKENS, TOKENS + 1,
                       "attn_norm.y,memory_norm.y,o_proj.y")
    source = TOKENS - begins
    bias = {}  # of the first layer of either side, which those behind it share
    worst = 0.0
    layers = [("encoder", i, 0) for i in range(2)]
    layers += [("decoder", i, part) for i in range(2) for part in (0, 1)]
    for index, (side, block, part) in enumerate(layers):
        sublayer = getattr(model, side).block[block].layer[part]
        x = torch.tensor(of_layer(given, index, "attn_norm").copy())[None]
        out = of_layer(given, index, "o_proj")
        rows = slice(0, source) if side == "encoder" else slice(source, TOKENS)
        x = x[:, rows]
        if side == "decoder" and part == 1:
            memory = torch.tensor(of_layer(given, index, "memory_norm").copy())[None, :source]
            attention, more = sublayer.EncDecAttention, dict(key_value_states=memory)
            mask = torch.zeros(1, 1, begins, source, dtype=torch.float64)
        else:
            attention, more = sublayer.SelfAttention, {}
            count = x.shape[1]
            mask = torch.zeros(1, 1, count, count, dtype=torch.float64)
            if side == "decoder":
                mask.masked_fill_(torch.ones(count, count, dtype=torch.bool).triu(1), float("-inf"))
            if side not in bias:
                bias[side] = attention.compute_bias(count, count)
            more["position_bias"] = bias[side] + mask
        with torch.no_grad():
            y = attention(x, mask=mask, **more)[0][0].numpy()
        worst = max(worst, apart(y, out[rows]))
        other = numpy.delete(out, numpy.arange(TOKENS)[rows], axis=0)
        if numpy.abs(other).max() != 0:
            print(f"{kind}: layer {index} changes rows of the other side")
            return False
    return said_of(kind, worst, said)


def check(kind, program, folder):
    if kind == "t5":
        return check_t5(kind, program, folder)
    if kind in FOREIGN:
        return check_foreign(kind, program, folder)
    model = make_model(kind)
    if model is None:
        print(f"{kind}: transformers {transformers.__version__} has no such model")
        return None
    # A copy: buffers such as rotary frequencies would lose digits too.
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder / kind)
    model = model.to(torch.float64).eval()
    given, said = ours(program, folder, kind, TOKENS, 32, "attn_norm.y,o_proj.y")
    worst = 0.0
    for index in range(len(model.model.layers)):
        x = of_layer(given, index, "attn_norm")
        own = attend(model, index, torch.tensor(x[None].copy()))[0].numpy()
        worst = max(worst, apart(own, of_layer(given, index, "o_proj")))
    return said_of(kind, worst, said)


def main(doc, kinds, check):
    """check(kind, program, folder): False = it is off."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--program", default="attnscope")
    parser.add_argument("--kinds", default=",".join(kinds))
    parser.add_argument("--keep", help="folder for models and taps (a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(options.keep or made)
        folder.mkdir(parents=True, exist_ok=True)
        results = [check(kind, options.program, folder) for kind in options.kinds.split(",")]
    sys.exit(0 if all(r is not False for r in results) else 1)


if __name__ == "__main__":
    main(__doc__, [*KINDS, *FOREIGN, "t5"], check)
