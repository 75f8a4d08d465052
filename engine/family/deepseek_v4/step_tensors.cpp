#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

template <class T>
as_tensor list_of(std::vector<T>& v) {
  return make_tensor(v.data(), {static_cast<std::int64_t>(v.size())});
}

// Of layers that the model may not have.
template <class T>
as_tensor list_if_any(std::vector<T>& v) {
  return v.empty() ? no_tensor() : list_of(v);
}

}  // namespace

as_tensor deepseek_v4_step_tensor(std::string_view name, StepMetadata& m, const ModelConfig& config,
                                  const CacheLayout& layout) {
  const auto groups = static_cast<std::int64_t>(layout.groups.size());
  const std::int64_t rows = m.num_live(), tokens = m.num_tokens_in_step();
  const auto by_group = [&](std::vector<std::int32_t>& v) {
    return make_tensor(v.data(), {groups, rows, m.columns});
  };
  if (name == "groups") return make_tensor(m.groups.data(), {groups, 2});
  if (name == "num_tokens") return list_of(m.num_tokens);
  if (name == "num_before") return list_of(m.num_before);
  if (name == "running") return list_of(m.running);
  if (name == "joins") return list_of(m.joins);
  if (name == "lost_to") return list_of(m.lost_to);
  if (name == "matching") return list_of(m.matching);
  if (name == "num_computed") return list_of(m.num_computed);
  if (name == "scheduled") return list_of(m.scheduled);
  if (name == "blocks") return by_group(m.blocks);
  if (name == "tables_before") return by_group(m.tables_before);
  if (name == "tables") return by_group(m.tables);
  if (name == "counts_before") return make_tensor(m.counts_before.data(), {groups, rows});
  if (name == "counts") return make_tensor(m.counts.data(), {groups, rows});
  if (name == "positions") return list_of(m.positions);
  if (name == "request_of") return list_of(m.request_of);
  if (name == "query_start") return list_of(m.query_start);
  if (name == "seq_lens") return list_of(m.seq_lens);
  if (name == "slots") return make_tensor(m.slots.data(), {groups, tokens});
  if (name == "c4_slots") return list_if_any(m.c4_slots);
  if (name == "c128_slots") return list_if_any(m.c128_slots);
  if (name == "c4_lens") return list_if_any(m.c4_lens);
  if (name == "tables/mla") return m.group_table(layout.mla_group);
  const auto swa = static_cast<std::int64_t>(layout.swa_groups.size());
  if (name == "tables/swa") {
    // SWA groups follow one another in the order of groups.
    const int first = layout.swa_groups.front();
    return make_tensor(m.tables.data() + first * rows * m.columns, {swa, rows, m.columns});
  }
  if (name == "swa_indices") return make_tensor(m.swa_indices.data(), {swa, tokens, config.window});
  if (name == "swa_lens") return list_of(m.swa_lens);
  if (name == "c128_indices") return make_tensor(m.c128_indices.data(), {tokens, m.c128_width});
  if (name == "c128_lens") return list_of(m.c128_lens);
  return no_tensor();
}

}  // namespace attnscope
