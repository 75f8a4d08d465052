#include "engine/opcase/import_tables.h"

#include <algorithm>
#include <map>

#include "engine/family/family.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

class Tables {
 public:
  Tables(const SessionInfo& info, StepTrace& trace) : info_(info), trace_(trace) {}

  void look(const PlacedCase& op) {
    const CacheLayout& layout = info_.layout;
    const OpCase& kept = *op.kept;
    if (lists_selected(op.place.op)) {
      return table(kept, layout.find(op.index, table_cache(op.place.op)));
    }
    for (const as_cache_access& access : RowAccess::of(op.place.op)) {
      const CacheSpec* spec = layout.find(op.index, {access.role, access.nth});
      // Rows of first tokens are beside others, whose table says which tokens there are.
      if (spec == nullptr || spec->retention.kind == GroupKind::kFirst) continue;
      if (RowAccess::by_table(access)) {
        table(kept, spec);
      } else if (access.by == AS_BY_SLOTS) {
        spec->tokens_per_row > 1 ? entries(kept, spec) : tokens(kept, spec);
      } else if (spec->retention.kind == GroupKind::kSliding) {
        window(kept, spec);
      } else if (!layer_selects(info_.config, op.index)) {
        all_entries(kept, spec);
      }
    }
  }

  void finish() {
    StepMetadata& m = trace_.metadata;
    const std::int64_t rows = m.num_live(), groups = std::ssize(info_.layout.groups);
    m.columns = 1;
    for (const auto& [at, block] : blocks_) m.columns = std::max(m.columns, at.column + 1);
    for (auto* all : {&m.blocks, &m.tables_before, &m.tables}) {
      all->assign(to_size(groups * rows * m.columns), 0);
    }
    for (const auto& [at, block] : blocks_) {
      const std::int64_t table = at.group * rows + at.request;
      for (auto* all : {&m.blocks, &m.tables_before, &m.tables}) {
        (*all)[to_size(table * m.columns + at.column)] = block;
      }
      for (auto* counts : {&m.counts_before, &m.counts}) {
        auto& count = (*counts)[to_size(table)];
        count = std::max(count, static_cast<std::int32_t>(at.column) + 1);
      }
      auto& own = trace_.requests[to_size(at.request)].tables[to_size(at.group)];
      if (std::ssize(own) <= at.column) own.resize(to_size(at.column + 1), 0);
      own[to_size(at.column)] = block;
      BlockOwner& owner = trace_.owners[to_size(block)];
      owner.request = owner.writer = static_cast<std::int32_t>(at.request);
      owner.group = static_cast<std::int32_t>(at.group);
      owner.index = static_cast<std::int32_t>(at.column);
      owner.refs = 1;
    }
  }

 private:
  struct At {
    std::int64_t group, request, column;
    auto operator<=>(const At&) const = default;
  };

  static const as_tensor find(const OpCase& kept, const char* name) {
    const auto it = kept.tensors.find(name);
    return it != kept.tensors.end() ? stored_view(it->second) : as_tensor{};
  }

  void put(const CacheSpec& spec, std::int64_t request, std::int64_t column, std::int64_t block) {
    const std::int64_t most = info_.config.max_position / std::max(1, spec.block_size()) + 1;
    if (block <= 0 || block >= std::ssize(trace_.owners) || column < 0 || column > most ||
        request < 0 || request >= trace_.metadata.num_live()) {
      return;
    }
    blocks_.emplace(At{spec.group, request, column}, static_cast<std::int32_t>(block));
  }
  // Row `row` of a request's logical rows lies in `slot`.
  void place(const CacheSpec& spec, std::int64_t request, std::int64_t row, std::int64_t slot) {
    if (slot < 0) return;
    put(spec, request, row / spec.rows_per_block, slot / spec.rows_per_block);
  }

  // Columns that a request's tokens need: further ones of a table are left over from others.
  void table(const OpCase& kept, const CacheSpec* spec) {
    const as_tensor t = find(kept, "table");
    if (spec == nullptr || !present(t)) return;
    const StepMetadata& m = trace_.metadata;
    for (std::int64_t r = 0; r < std::min<std::int64_t>(t.shape[0], m.num_live()); ++r) {
      const std::int64_t tokens = m.seq_lens[to_size(r)];
      const std::int64_t used = (tokens + spec->block_size() - 1) / spec->block_size();
      for (std::int64_t c = 0; c < std::min(t.shape[1], used); ++c) {
        put(*spec, r, c, *at<std::int32_t>(t, r, c));
      }
    }
  }

  // Slots of the step's own tokens, which are the group's slot mapping as well.
  void tokens(const OpCase& kept, const CacheSpec* spec) {
    const as_tensor slots = find(kept, "slots");
    StepMetadata& m = trace_.metadata;
    if (spec == nullptr || !present(slots)) return;
    for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
      const std::int64_t slot = *at<std::int64_t>(slots, t);
      place(*spec, m.token_to_req[to_size(t)], m.positions[to_size(t)], slot);
      m.slots[to_size(spec->group * m.num_tokens_in_step() + t)] = slot;
    }
  }

  // Slots of the entries that end at a token.
  void entries(const OpCase& kept, const CacheSpec* spec) {
    const as_tensor slots = find(kept, "slots");
    const auto ratio = kept.integers.find("ratio");
    const StepMetadata& m = trace_.metadata;
    if (spec == nullptr || !present(slots) || ratio == kept.integers.end() || ratio->second < 1) {
      return;
    }
    for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
      place(*spec, m.token_to_req[to_size(t)], m.positions[to_size(t)] / ratio->second,
            *at<std::int64_t>(slots, t));
    }
  }

  // The window of a token at p: positions p - len + 1 .. p, in order.
  void window(const OpCase& kept, const CacheSpec* spec) {
    const as_tensor indices = find(kept, "indices");
    const as_tensor lens = find(kept, "topk_length");
    if (spec == nullptr || !present(indices) || !present(lens)) return;
    StepMetadata& m = trace_.metadata;
    const auto& groups = info_.layout.swa_groups;
    const auto group = std::ranges::find(groups, spec->group) - groups.begin();
    const auto all = std::ranges::find_if(m.own, [&](const StepTensor& tensor) {
      return tensor.kind == StepTensor::Kind::kLists && tensor.cache == spec->id;
    });
    if (all == m.own.end()) return;
    std::vector<std::int32_t>& lengths = m.own[to_size(all->lengths)].numbers;
    for (std::int64_t t = 0; t < indices.shape[0]; ++t) {
      const auto len = std::clamp<std::int64_t>(*at<std::int32_t>(lens, t), 0, indices.shape[1]);
      lengths[to_size(t)] = static_cast<std::int32_t>(len);
      for (std::int64_t k = 0; k < len; ++k) {
        const std::int32_t slot = *at<std::int32_t>(indices, t, k);
        place(*spec, m.token_to_req[to_size(t)], m.positions[to_size(t)] - len + 1 + k, slot);
        all->numbers[to_size((group * indices.shape[0] + t) * indices.shape[1] + k)] = slot;
      }
    }
  }

  // Where nothing is selected, lists have all entries, in order.
  void all_entries(const OpCase& kept, const CacheSpec* spec) {
    const as_tensor indices = find(kept, "extra_indices");
    const as_tensor lens = find(kept, "extra_topk_length");
    if (spec == nullptr || !present(indices) || !present(lens)) return;
    for (std::int64_t t = 0; t < indices.shape[0]; ++t) {
      const auto len = std::clamp<std::int64_t>(*at<std::int32_t>(lens, t), 0, indices.shape[1]);
      for (std::int64_t k = 0; k < len; ++k) {
        place(*spec, trace_.metadata.token_to_req[to_size(t)], k, *at<std::int32_t>(indices, t, k));
      }
    }
  }

  const SessionInfo& info_;
  StepTrace& trace_;
  std::map<At, std::int32_t> blocks_;  // the first that says so
};

}  // namespace

void fill_tables(const std::vector<PlacedCase>& ops, const SessionInfo& info, StepTrace& trace) {
  Tables tables(info, trace);
  for (const PlacedCase& op : ops) tables.look(op);
  tables.finish();
}

}  // namespace attnscope
