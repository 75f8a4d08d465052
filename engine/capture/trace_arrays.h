// The arrays of a step that are tensors of a capture's payload, listed once for writing and
// reading.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/session/step/step_trace.h"

namespace attnscope {

// v(name, vector of i32 or i64). The family's own tensors by their names, once it has listed them.
template <class V>
void arrays(V& v, StepMetadata& m) {
  v("live", m.live);
  v("num_tokens", m.num_tokens);
  v("num_before", m.num_before);
  v("running", m.running);
  v("joins", m.joins);
  v("lost_to", m.lost_to);
  v("matching", m.matching);
  v("num_computed", m.num_computed);
  v("num_scheduled_tokens", m.num_scheduled_tokens);
  v("groups", m.groups);
  v("blocks", m.blocks);
  v("tables_before", m.tables_before);
  v("tables", m.tables);
  v("counts_before", m.counts_before);
  v("counts", m.counts);
  v("tokens", m.tokens);
  v("positions", m.positions);
  v("token_to_req", m.token_to_req);
  v("query_start_loc", m.query_start_loc);
  v("seq_lens", m.seq_lens);
  v("sample_rows", m.sample_rows);
  v("sample_request", m.sample_request);
  v("slots", m.slots);
  for (StepTensor& tensor : m.own) {
    // These came later than the format, with the switches that have them filled.
    const bool later = tensor.kind == StepTensor::Kind::kParts ||
                       tensor.kind == StepTensor::Kind::kNext || tensor.of_plan();
    if (later && !tensor.used) continue;
    tensor.values([&](auto& values) { v(tensor.name, values); });
  }
}

template <class V>
void arrays(V& v, StepTrace& t) {
  v("kept", t.kept);
  v("free_list", t.free_list);
  v("fresh", t.fresh);
  v("freed", t.freed);
  v("sampled", t.sampled);
}

// The members of structs that are rows of an i64 tensor, in the order of its columns.
template <class V>
void columns(V& v, BlockOwner& o) {
  v(o.request);
  v(o.group);
  v(o.index);
  v(o.refs);
  v(o.writer);
  v(o.keyed);
}
template <class V>
void columns(V& v, CacheEvent& e) {
  v(e.kind);
  v(e.reason);
  v(e.step);
  v(e.request);
  v(e.group);
  v(e.block);
  v(e.refs);
  v(e.value);
}
template <class V>
void columns(V& v, BlockKey& k) {
  v(k.block);
  v(k.group);
  v(k.hash);
  v(k.writer);
  v(k.tokens);
  v(k.prompt_end);
}

}  // namespace attnscope
