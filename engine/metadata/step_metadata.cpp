#include "engine/metadata/step_metadata.h"

#include <algorithm>
#include <utility>

#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

as_tensor StepMetadata::group_table(int group) const {
  return make_tensor(tables.data() + group * num_live() * columns, {num_live(), columns});
}

std::int64_t StepMetadata::logits_width() const {
  // Tokens of an entry that layers select from; of none the scores have no place.
  const auto from = std::ranges::find(own, true, &StepTensor::selected_from);
  const std::int64_t pooled =
      from == own.end() ? 1 : std::max<std::int64_t>(1, from->tokens_per_row);
  std::int64_t width = 1;
  for (std::int32_t n : seq_lens) width = std::max<std::int64_t>(width, n / pooled);
  return width;
}

const StepTensor* StepMetadata::entry_slots(std::int64_t tokens_per_row) const {
  const auto it = std::ranges::find_if(own, [&](const StepTensor& tensor) {
    return tensor.kind != StepTensor::Kind::kLengths && tensor.tokens_per_row == tokens_per_row;
  });
  return it == own.end() ? nullptr : &*it;
}

const StepTensor* StepMetadata::lists_of(CacheId cache) const {
  const auto it = std::ranges::find_if(own, [&](const StepTensor& tensor) {
    return tensor.kind == StepTensor::Kind::kLists && tensor.cache == cache;
  });
  return it == own.end() ? nullptr : &*it;
}

StepMetadata begin_step(const CacheLayout& layout, const Serving& serving,
                        const WorkerTables& tables, StepMetadata last) {
  StepMetadata step;
  for (const auto list :
       {&StepMetadata::blocks, &StepMetadata::tables_before, &StepMetadata::tables}) {
    step.*list = std::move(last.*list);
  }
  step.own = std::move(last.own);
  for (StepTensor& tensor : step.own) tensor.clear();
  step.live = serving.live();
  std::int64_t longest = 1;
  for (std::size_t row = 0; row < step.live.size(); ++row) {
    const Request& request = serving.requests()[to_size(step.live[row])];
    const auto drafts = static_cast<std::int64_t>(serving.drafts()[row].size());
    step.num_tokens.push_back(static_cast<std::int32_t>(request.num_tokens() + drafts));
    step.num_before.push_back(static_cast<std::int32_t>(request.computed));
    step.running.push_back(request.state == RequestState::kRunning ? 1 : 0);
    longest = std::max(longest, request.max_len());
  }
  const auto rows = step.num_live();
  const auto groups = static_cast<std::int64_t>(layout.groups.size());
  step.groups.reserve(2);  // present, also where a model has no cache
  for (const CacheGroup& group : layout.groups) {
    step.groups.push_back(group.block_tokens);
    step.groups.push_back(group.reach());
    const std::int64_t needed = (longest + group.block_tokens - 1) / group.block_tokens;
    step.columns = std::max(step.columns, needed);
  }
  for (auto* list : {&step.joins, &step.matching, &step.num_computed, &step.num_scheduled_tokens}) {
    list->assign(to_size(rows), 0);
  }
  step.lost_to.assign(to_size(rows), -1);
  step.tables_before.assign(to_size(groups * rows * step.columns), AS_NULL_BLOCK);
  step.counts_before.assign(to_size(groups * rows), 0);
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto& table = tables[to_size(step.live[to_size(r)])][to_size(g)];
      std::copy(table.begin(), table.end(),
                step.tables_before.begin() + (g * rows + r) * step.columns);
      step.counts_before[to_size(g * rows + r)] = static_cast<std::int32_t>(table.size());
    }
  }
  step.blocks.assign(step.tables_before.size(), AS_NULL_BLOCK);
  step.tables = step.tables_before;
  step.counts = step.counts_before;
  return step;
}

void take_decisions(StepMetadata& step, const Serving& serving) {
  const ServingStep& decided = serving.step();
  step.joins = decided.joins;
  step.lost_to = decided.lost_to;
  step.matching = decided.matching;
  const std::int64_t rows = step.num_live();
  const auto groups = static_cast<std::int64_t>(step.groups.size() / 2);
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto table = serving.table(step.live[to_size(r)], static_cast<int>(g));
      std::copy(table.begin(), table.end(), step.blocks.begin() + (g * rows + r) * step.columns);
    }
  }
}

void keep_tables(const StepMetadata& step, WorkerTables& tables) {
  const std::int64_t rows = step.num_live();
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(step.counts.size()); ++i) {
    const auto first = step.tables.begin() + i * step.columns;
    tables[to_size(step.live[to_size(i % rows)])][to_size(i / rows)].assign(
        first, first + step.counts[to_size(i)]);
  }
}

void keep_tables(const Serving& serving, WorkerTables& tables) {
  const ServingStep& step = serving.step();
  for (std::size_t r = 0; r < serving.live().size(); ++r) {
    if (step.num_scheduled_tokens[r] == 0) continue;
    const std::int32_t id = serving.live()[r];
    for (std::size_t g = 0; g < tables[to_size(id)].size(); ++g) {
      std::vector<std::int32_t>& table = tables[to_size(id)][g];
      const auto blocks = serving.table(id, static_cast<int>(g));
      if (step.joins[r] != 0) table.clear();
      table.insert(table.end(), blocks.begin() + static_cast<std::ptrdiff_t>(table.size()),
                   blocks.end());
    }
  }
}

std::int64_t plan_tokens(StepMetadata& step, const Serving& serving, const CacheLayout& layout) {
  for (auto* list : {&step.tokens, &step.token_to_req, &step.query_start_loc, &step.seq_lens,
                     &step.source_lens, &step.sample_request}) {
    list->clear();
  }
  step.positions.clear();
  step.sample_rows.clear();
  step.query_start_loc.push_back(0);
  std::int64_t longest = 1;
  for (std::int64_t r = 0; r < step.num_live(); ++r) {
    const Request& request = serving.requests()[to_size(step.live[to_size(r)])];
    const std::int32_t first = step.num_computed[to_size(r)];
    const std::int32_t n = step.num_scheduled_tokens[to_size(r)];
    const std::vector<std::int32_t>& drafts = serving.drafts()[to_size(r)];
    const std::int64_t known = request.num_tokens();
    step.source_lens.push_back(static_cast<std::int32_t>(request.source_tokens));
    for (std::int64_t p = first; p < first + n; ++p) {
      // The last known token and the drafts behind it: all of them say what comes next.
      if (p >= known - 1) {
        step.sample_rows.push_back(step.num_tokens_in_step());
        step.sample_request.push_back(static_cast<std::int32_t>(r));
      }
      step.tokens.push_back(p < known ? request.tokens[to_size(p)] : drafts[to_size(p - known)]);
      step.positions.push_back(p);
      step.token_to_req.push_back(static_cast<std::int32_t>(r));
    }
    step.query_start_loc.push_back(step.query_start_loc.back() + n);
    step.seq_lens.push_back(first + n);
    if (n > 0) longest = std::max<std::int64_t>(longest, first + n);
  }
  const std::int64_t tokens = step.num_tokens_in_step();
  step.slots.assign(to_size(static_cast<std::int64_t>(layout.groups.size()) * tokens), -1);
  return longest;
}

void plan_lists(StepMetadata& step, std::int64_t list_columns) {
  step.list_columns = list_columns;
  for (StepTensor& tensor : step.own) tensor.assign(step.num_tokens_in_step(), list_columns);
}

void plan_next_tokens(StepMetadata& step, const Serving& serving, const std::int32_t* sampled) {
  StepTensor& next = *std::ranges::find(step.own, StepTensor::Kind::kNext, &StepTensor::kind);
  for (std::size_t t = 0; t < step.positions.size(); ++t) {
    const std::int32_t id = step.live[to_size(step.token_to_req[t])];
    const Request& request = serving.requests()[to_size(id)];
    const std::int64_t behind = step.positions[t] + 1;
    next.numbers[t] = behind < request.num_tokens() ? request.tokens[to_size(behind)] : -1;
  }
  for (std::size_t i = 0; i < step.sample_rows.size(); ++i) {
    next.numbers[to_size(step.sample_rows[i])] = sampled[i];
  }
}

}  // namespace attnscope
