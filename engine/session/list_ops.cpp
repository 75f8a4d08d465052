#include "engine/session/list_ops.h"

#include "engine/session/layer_ops.h"
#include "engine/session/op_numbers.h"

namespace attnscope {
namespace {

template <class T>
as_tensor list_tensor(std::vector<T>& v) {
  return make_tensor(v.data(), {static_cast<std::int64_t>(v.size())});
}

}  // namespace

std::span<const as_op_id> list_ops(const ModelConfig& config) {
  return step_ops(config).subspan(2);  // behind schedule and block_tables
}

OpParams list_op_params(as_op_id op, StepMetadata& m, const ModelConfig& config,
                        const CacheLayout& layout) {
  const auto groups = static_cast<std::int64_t>(layout.groups.size());
  const std::int64_t rows = m.num_live(), tokens = m.num_tokens_in_step();
  OpParams params;
  if (op == AS_OP_SLOT_MAPPING) {
    auto& p = params.init<as_slot_mapping_params>(op);
    p.groups = make_tensor(m.groups.data(), {groups, 2});
    p.tables = make_tensor(m.tables.data(), {groups, rows, m.columns});
    p.positions = list_tensor(m.positions);
    p.request_of = list_tensor(m.request_of);
    p.slots = make_tensor(m.slots.data(), {groups, tokens});
    if (!m.c4_slots.empty()) p.c4_slots = list_tensor(m.c4_slots);
    if (!m.c128_slots.empty()) p.c128_slots = list_tensor(m.c128_slots);
    if (!m.c4_lens.empty()) p.c4_lens = list_tensor(m.c4_lens);
  } else if (op == AS_OP_SWA_INDEX) {
    auto& p = params.init<as_swa_index_params>(op);
    const auto swa = static_cast<std::int64_t>(layout.swa_groups.size());
    const int first = layout.swa_groups.front();
    // SWA groups follow one another in the order of groups.
    p.tables = make_tensor(m.tables.data() + first * rows * m.columns, {swa, rows, m.columns});
    p.query_start = list_tensor(m.query_start);
    p.seq_lens = list_tensor(m.seq_lens);
    p.request_of = list_tensor(m.request_of);
    p.indices = make_tensor(m.swa_indices.data(), {swa, tokens, config.window});
    p.lens = list_tensor(m.swa_lens);
  } else {
    auto& p = params.init<as_c128_index_params>(op);
    p.table = m.group_table(layout.mla_group);
    p.positions = list_tensor(m.positions);
    p.request_of = list_tensor(m.request_of);
    p.indices = make_tensor(m.c128_indices.data(), {tokens, m.c128_width});
    p.lens = list_tensor(m.c128_lens);
  }
  set_step_numbers(op, config, layout, 0, 0, &params.get<as_params_head>());
  return params;
}

}  // namespace attnscope
