// The fields of what a session records, listed once for writing and reading (json_fields.h). Arrays
// of numbers with a place of their own in a payload are not among them: trace_arrays.h.
#pragma once

#include "engine/io/json_fields.h"
#include "engine/model/model_config.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

template <>
struct EnumText<Verdict> {
  static constexpr int kCount = kVerdicts;
  static const char* name(int i) { return verdict_name(static_cast<Verdict>(i)); }
};
template <>
struct EnumText<EventKind> {
  static constexpr int kCount = kEventKinds;
  static const char* name(int i) { return event_kind_name(static_cast<EventKind>(i)); }
};
template <>
struct EnumText<RequestState> {
  static constexpr int kCount = static_cast<int>(RequestState::kAborted) + 1;
  static const char* name(int i) { return request_state_name(static_cast<RequestState>(i)); }
};

template <>
struct EnumText<CacheEventKind> {
  static constexpr int kCount = kCacheEventKinds;
  static const char* name(int i) { return cache_event_name(static_cast<CacheEventKind>(i)); }
};
template <>
struct EnumText<CacheReason> {
  static constexpr int kCount = kCacheReasons;
  static const char* name(int i) { return cache_reason_name(static_cast<CacheReason>(i)); }
};

template <class V>
void fields(V& v, CacheEvent& e) {
  v("kind", e.kind);
  v("reason", e.reason);
  v("step", e.step);
  v("request", e.request);
  v("group", e.group);
  v("block", e.block);
  v("refs", e.refs);
  v("value", e.value);
}

template <class V>
void fields(V& v, ErrorFigures& f) {
  v("max_abs", f.max_abs);
  v("max_rel", f.max_rel);
  v("cosine", f.cosine);
  v("differing", f.differing);
}

template <class V>
void fields(V& v, SelectionDrift& s) {
  v("tokens", s.tokens);
  v("entries", s.entries);
  v("margin", s.margin);
  v("score_difference", s.score_difference);
}

template <class V>
void fields(V& v, WorstElement& w) {
  v("index", w.index);
  v("value", w.value);
  v("reference", w.reference);
}

template <class V>
void fields(V& v, TapResult& r) {
  v("layer", r.layer);
  v("op", r.op);
  v("tap", r.tap);
  v("lane", r.lane);
  v("shape", r.shape);
  v("dtype", r.dtype);
  v("elements", r.elements);
  v("introduced", r.introduced);
  v("inherited", r.inherited);
  v("quantisation", r.quantisation);
  v("selection", r.selection);
  v("tolerance", r.tolerance);
  v("budget_used", r.budget_used);
  v("verdict", r.verdict);
  v("worst", r.worst);
  v("note", r.note);
}

template <class V>
void fields(V& v, Place& p) {
  v("step", p.step);
  v("layer", p.layer);
  v("op", p.op);
}

template <class V>
void fields(V& v, Event& e) {
  v("kind", e.kind);
  v("place", e.place);
  v("request", e.request);
  v("group", e.group);
  v("block", e.block);
  v("text", e.text);
}

template <class V>
void fields(V& v, LayerCell& c) {
  v("layer", c.layer);
  v("worst", c.worst);
  v("budget_used", c.budget_used);
  v("microseconds", c.microseconds);
  static const char* const kCounts[kVerdicts] = {"equal",    "rounding", "quantisation",
                                                 "near_tie", "wrong",    "not_compared"};
  for (int i = 0; i < kVerdicts; ++i) v(kCounts[i], c.counts[i]);
}

template <class V>
void fields(V& v, PoolUsage& u) {
  v("held", u.held);
  v("free_keyed", u.free_keyed);
  v("free_empty", u.free_empty);
  v("null", u.null);
}

template <class V>
void fields(V& v, OpTiming& t) {
  v("op", t.op);
  v("layer", t.layer);
  v("microseconds", t.microseconds);
  v("start", t.start);
  v("stream", t.stream);
}

template <class V>
void fields(V& v, LaunchExtent& e) {
  v("x", e.x);
  v("y", e.y);
  v("z", e.z);
}

template <class V>
void fields(V& v, KernelLaunch& k) {
  v("name", k.name);
  v("grid", k.grid);
  v("block", k.block);
  v("cluster", k.cluster);
  v("registers", k.registers);
  v("static_shared", k.static_shared);
  v("dynamic_shared", k.dynamic_shared);
  v("local", k.local);
  v("at_once", k.at_once);
}

template <class V>
void fields(V& v, OpLaunches& l) {
  v("major", l.major);
  v("minor", l.minor);
  v("multiprocessors", l.multiprocessors);
  v("kernels", l.kernels);
  v("unknown", l.unknown);
}

template <class V>
void fields(V& v, PoolCounts& p) {
  v("layer", p.layer);
  v("hits", p.hits);
  v("misses", p.misses);
  v("written", p.written);
  v("evictions", p.evictions);
  v("warmed", p.warmed);
}

template <class V>
void fields(V& v, StepSummary& s) {
  v("step", s.step);
  v("tokens", s.tokens);
  v("decode_only", s.decode_only);
  v("complete", s.complete);
  v("seconds", s.seconds);
  v("wall_seconds", s.wall_seconds);
  v("selective", s.selective);
  v("usage", s.usage);
  v("hit_tokens", s.hit_tokens);
  v("preemptions", s.preemptions);
  v("layers", s.layers);
  v("results", s.results);
  v("events", s.events);
  v.later("decisions", s.decisions);
  v.later("timings", s.timings);
  v.later("pools", s.pools);
}

template <class V>
void fields(V& v, Request& r) {
  v("id", r.id);
  v("name", r.name);
  v("prompt_tokens", r.prompt_tokens);
  v("max_new_tokens", r.max_new_tokens);
  v("priority", r.priority);
  v("arrival_step", r.arrival_step);
  v("abort_step", r.abort_step);
  v("computed", r.computed);
  v("state", r.state);
  v("hit_tokens", r.hit_tokens);
  v("preemptions", r.preemptions);
  v("recomputed", r.recomputed);
}

template <class V>
void fields(V& v, StepWhy& w) {
  v("request", w.request);
  v("text", w.text);
}

template <class V>
void fields(V& v, ProfileSwitches& s) {
  v("profile", s.profile);
  v("index_format", s.index_format);
  v("hadamard", s.hadamard);
  v("ratio0_yarn", s.ratio0_yarn);
  v("round_pooled", s.round_pooled);
  // Switches that came later stand in the text of the profile alone.
  if constexpr (std::is_same_v<V, JsonFieldReader>) {
    if (auto all = profile_switches(s.profile)) {
      s.scale_floor = all->scale_floor;
      s.fp4_rule = all->fp4_rule;
      s.q_norm = all->q_norm;
      s.fp8_projections = all->fp8_projections;
      s.bf16_wo_a = all->bf16_wo_a;
      s.gathered_prefill = all->gathered_prefill;
      s.rope_frequencies = all->rope_frequencies;
      s.round_rotated = all->round_rotated;
      s.index_scores = all->index_scores;
      s.attention_plan = all->attention_plan;
      s.multiprocessors = all->multiprocessors;
      s.attention_form = all->attention_form;
    }
  }
  // What the profile's name stood for; files of before do not say.
  int version = std::is_same_v<V, JsonFieldReader> ? 1 : kProfilesVersion;
  v.later("profiles", version);
  s = switches_of_version(s, version);
}

template <class V>
void fields(V& v, TensorParallel& p) {
  v("size", p.size);
  v("rank", p.rank);
}

template <class V>
void fields(V& v, DenseAttention& d) {
  v("windows", d.windows);
  v("block_tokens", d.block_tokens);
  v("rope_style", d.rope_style);
  v("local_rope_theta", d.local_rope_theta);
  v("scale", d.scale);
  v("soft_cap", d.soft_cap);
  v("qk_norm", d.qk_norm);
  v("weight_plus_one", d.weight_plus_one);
  v("sinks", d.sinks);
  v("tied", d.tied);
  v.later("chunks", d.chunks);
  v.later("unrotated", d.unrotated);
  v.later("alibi_bias_max", d.alibi_bias_max);
  v.later("shared_layers", d.shared_layers);
  v.later("encoder", d.encoder);
  v.later("sides", d.sides);
  v.later("decoder_prompt", d.decoder_prompt);
  v.later("bias_buckets", d.bias_buckets);
  v.later("bias_distance", d.bias_distance);
  v.later("mask", d.mask);
  v.later("score", d.score);
  v.later("cache_record", d.cache_record);
  v.later("first_tokens_16bit", d.first_tokens_16bit);
}

template <class V>
void fields(V& v, MlaAttention& m) {
  v("nope_dim", m.nope_dim);
  v("value_dim", m.value_dim);
  v("indexer", m.indexer);
  v("hadamard", m.hadamard);
  v("block_tokens", m.block_tokens);
  v("mscale", m.mscale);
  v("index_norm_eps", m.index_norm_eps);
  v("latent_record", m.latent_record);
  v("latent_scale", m.latent_scale);
  v("index_scale", m.index_scale);
  v("tied", m.tied);
}

template <class V>
void fields(V& v, ModelConfig& c) {
  v("name", c.name);
  v("hidden", c.hidden);
  v("heads", c.heads);
  v("head_dim", c.head_dim);
  v("q_lora", c.q_lora);
  v("o_lora", c.o_lora);
  v("o_groups", c.o_groups);
  v("window", c.window);
  v("index_heads", c.index_heads);
  v("index_dim", c.index_dim);
  v("index_topk", c.index_topk);
  v("rms_eps", c.rms_eps);
  v("rope_theta", c.rope_theta);
  v("compress_rope_theta", c.compress_rope_theta);
  v("yarn_factor", c.yarn_factor);
  v("yarn_original_max", c.yarn_original_max);
  v("yarn_beta_fast", c.yarn_beta_fast);
  v("yarn_beta_slow", c.yarn_beta_slow);
  v("max_position", c.max_position);
  v("compress_ratios", c.compress_ratios);
  v("layers", c.layers);
  v("switches", c.switches);
  v.later("parallel", c.parallel);
  v.later("family", c.family);
  v.later("kv_heads", c.kv_heads);
  v.later("rope_dim", c.rope_dim);
  v.later("dense", c.dense);
  v.later("mla", c.mla);
  v.later("draft_layers", c.draft_layers);
  v.later("host_rows", c.host_rows);
  v.later("swaps", c.swaps);
  v.later("context_ranks", c.context_ranks);
}

}  // namespace attnscope
