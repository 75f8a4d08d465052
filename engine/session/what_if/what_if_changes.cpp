#include "engine/session/what_if/what_if_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/session/what_if/deepseek_v4/changes.h"
#include "engine/session/what_if/mla/changes.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

Error nothing_to_change(as_op_id op) {
  const char* hint = "name an op of a layer, or of the head";
  if (as_op_role(op) == AS_ROLE_COPY) {
    return bad_input(fmt::format("{} moves bytes as they are: there is nothing to change in them",
                                 as_op_find(op)->name),
                     hint);
  }
  return bad_input("tables and lists are integers: there is nothing to change in them", hint);
}

namespace {

constexpr float kInfiniteSink = std::numeric_limits<float>::infinity();

bool as_it_ran(const Session&, OpParams&, ChangedInputs&) { return true; }

bool all_sinks(OpParams& params, ChangedInputs& memory, float value) {
  auto& p = params.get<as_sparse_attention_params>();
  memory.floats.assign(static_cast<std::size_t>(p.sinks.shape[0]), value);
  p.sinks = make_tensor(memory.floats.data(), {p.sinks.shape[0]});
  return true;
}

bool no_sink(const Session&, OpParams& params, ChangedInputs& memory) {
  return all_sinks(params, memory, -kInfiniteSink);
}

bool sink_takes_all(const Session&, OpParams& params, ChangedInputs& memory) {
  return all_sinks(params, memory, kInfiniteSink);
}

bool window_alone(const Session&, OpParams& params, ChangedInputs& memory) {
  auto& p = params.get<as_sparse_attention_params>();
  if (!present(p.extra_topk_length)) return false;
  memory.integers.assign(static_cast<std::size_t>(p.extra_topk_length.shape[0]), 0);
  p.extra_topk_length = make_tensor(memory.integers.data(), {p.extra_topk_length.shape[0]});
  return true;
}

bool entries_alone(const Session&, OpParams& params, ChangedInputs& memory) {
  auto& p = params.get<as_sparse_attention_params>();
  if (!present(p.extra_topk_length)) return false;
  memory.integers.assign(static_cast<std::size_t>(p.topk_length.shape[0]), 0);
  p.topk_length = make_tensor(memory.integers.data(), {p.topk_length.shape[0]});
  return true;
}

// The newest row of each window: the token's own.
bool own_row_alone(const Session&, OpParams& params, ChangedInputs& memory) {
  auto& p = params.get<as_sparse_attention_params>();
  const std::int64_t tokens = p.topk_length.shape[0];
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t len = *at<std::int32_t>(p.topk_length, t);
    memory.integers.push_back(len > 0 ? *at<std::int32_t>(p.indices, t, len - 1) : -1);
  }
  p.indices = make_tensor(memory.integers.data(), {tokens, 1});
  memory.longs.resize(static_cast<std::size_t>(tokens));
  auto* ones = reinterpret_cast<std::int32_t*>(memory.longs.data());
  std::fill_n(ones, tokens, 1);
  p.topk_length = make_tensor(ones, {tokens});
  if (present(p.extra_topk_length)) {
    p.extra_cache = as_cache{};
    p.extra_indices = no_tensor();
    p.extra_topk_length = no_tensor();
  }
  return true;
}

// Lists of logical rows as slots of the paged cache, through the tables of the step.
class SlotLists {
 public:
  SlotLists(const Session& session, int layer, CacheId id)
      : metadata_(session.metadata()), space_(session.verifier().space()) {
    const CacheSpec& spec = *session.parts().layout.find(layer, id);
    table_ = metadata_.group_table(spec.group);
    rows_per_block_ = spec.rows_per_block;
    ratio_ = row_ratio(spec);
  }

  as_tensor slots(const as_tensor& rows, const as_tensor& lens,
                  std::vector<std::int32_t>& memory) const {
    const std::int64_t tokens = rows.shape[0], width = rows.shape[1];
    memory.assign(static_cast<std::size_t>(tokens * width), -1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t r = metadata_.token_to_req[static_cast<std::size_t>(t)];
      const std::int64_t base = space_.base(metadata_.live[static_cast<std::size_t>(r)], ratio_);
      for (std::int64_t k = 0; k < *at<std::int32_t>(lens, t); ++k) {
        const std::int64_t row = *at<std::int32_t>(rows, t, k) - base;
        if (row < 0 || row / rows_per_block_ >= table_.shape[1]) continue;
        memory[static_cast<std::size_t>(t * width + k)] = static_cast<std::int32_t>(
            *at<std::int32_t>(table_, r, row / rows_per_block_) * rows_per_block_ +
            row % rows_per_block_);
      }
    }
    return make_tensor(memory.data(), {tokens, width});
  }

 private:
  const StepMetadata& metadata_;
  const AddressSpace& space_;
  as_tensor table_{};
  std::int64_t rows_per_block_ = 1;
  int ratio_ = 1;
};

// Window and entries that ref.sim, on its own history, attends to.
bool reference_lists(const Session& session, OpParams& params, ChangedInputs& memory) {
  if (memory.free == nullptr || memory.free->op() != params.op()) return false;
  const auto& own = memory.free->get<as_sparse_attention_params>();
  auto& p = params.get<as_sparse_attention_params>();
  p.indices = SlotLists(session, memory.layer, tap_cache(params.op(), "cache"))
                  .slots(own.indices, own.topk_length, memory.integers);
  p.topk_length = own.topk_length;
  if (!present(p.extra_indices)) return true;
  p.extra_indices = SlotLists(session, memory.layer, tap_cache(params.op(), "extra_cache"))
                        .slots(own.extra_indices, own.extra_topk_length, memory.more);
  p.extra_topk_length = own.extra_topk_length;
  return true;
}

}  // namespace

bool no_rotation(const Session&, OpParams& params, ChangedInputs& memory) {
  as_rope& rope = *rope_of(params);
  as_tensor& positions = params.tensor_named("positions");
  const std::int64_t columns = rope.table.shape[1];
  memory.floats.assign(static_cast<std::size_t>(rope.table.shape[0] * columns), 0.0f);
  for (std::int64_t t = 0; t < rope.table.shape[0]; ++t) {
    std::fill_n(memory.floats.data() + t * columns, columns / 2, 1.0f);
  }
  memory.longs.assign(static_cast<std::size_t>(positions.shape[0]), 0);
  positions = make_tensor(memory.longs.data(), {positions.shape[0]});
  set_rope_table(rope, memory.floats.data(), rope.table.shape[0], columns);
  return true;
}

bool yarn_turned(const Session& session, OpParams& params, ChangedInputs& memory) {
  as_rope& rope = *rope_of(params);
  const ModelConfig& config = session.parts().config;
  rope.factor = rope.factor > 1 ? 1 : config.yarn_factor;
  rope.original_max_pos = config.yarn_original_max;
  rope.beta_fast = config.yarn_beta_fast;
  rope.beta_slow = config.yarn_beta_slow;
  const std::int64_t rows = rope.table.shape[0];
  memory.floats.resize(static_cast<std::size_t>(rows * config.rope_dim));
  cpu::build_rope_table(rope, rows, memory.floats.data(), session.parts().threads, config.rope_dim);
  set_rope_table(rope, memory.floats.data(), rows, config.rope_dim);
  return true;
}

bool unit_weights(const Session&, OpParams& params, ChangedInputs& memory) {
  as_tensor& weight = params.tensor_named("weight");
  memory.halves.assign(static_cast<std::size_t>(weight.shape[0]), bf16_t{0x3f80});
  weight = make_tensor(memory.halves.data(), {weight.shape[0]});
  return true;
}

bool reads_quantised_rows(as_op_id op) {
  return std::ranges::any_of(RowAccess::of(op), [](const as_cache_access& access) {
    return access.by == AS_BY_LIST || access.by == AS_BY_TABLE;
  });
}

std::vector<Change> changes_of(as_op_id op) {
  std::vector<Change> all = {{kAsItRan, "nothing changed", as_it_ran}};
  const auto add = [&all](std::vector<Change> more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  switch (op) {
    case AS_OP_SPARSE_ATTENTION:
      add({{"no sink", "every sink is -inf", no_sink},
           {kSinkTakesAll, "every sink is +inf: outputs are 0", sink_takes_all},
           {"window alone", "no compressed entries", window_alone},
           {"entries alone", "no window rows", entries_alone},
           {"own row alone", "each token attends its own row only", own_row_alone},
           {kReferenceLists, "the rows ref.sim attends to on its own history", reference_lists}});
      break;
    case AS_OP_Q_ROPE_KV_INSERT:
    case AS_OP_INVERSE_ROPE:
      add({kNoRotation, kYarnTurned});
      break;
    case AS_OP_ATTN_NORM:
    case AS_OP_MEMORY_NORM:
    case AS_OP_FINAL_NORM:
      add({kUnitWeights});
      break;
    default:
      break;
  }
  add(deepseek_v4_changes(op));
  add(mla_changes(op));
  return all;
}

}  // namespace attnscope
