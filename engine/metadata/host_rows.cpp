#include "engine/metadata/host_rows.h"

#include <algorithm>

#include "engine/model/numbers.h"
#include "kernels/params/row_format.h"

namespace attnscope {

HostRows::HostRows(const CacheSpec& spec, std::vector<std::int64_t> prompts)
    : group_(spec.group),
      tokens_per_row_(spec.tokens_per_row),
      rows_per_block_(spec.rows_per_block),
      prompts_(std::move(prompts)),
      was_decoding_(prompts_.size(), false) {}

void HostRows::own(std::int32_t block, Owner owner) {
  if (const auto known = owners_.find(block); known != owners_.end()) {
    const Owner before = known->second;
    gone_.push_back({before.request, before.column * rows_per_block_, rows_per_block_});
    if (const auto at = blocks_.find(before); at != blocks_.end() && at->second == block) {
      blocks_.erase(at);
    }
  }
  // Its request has lost an older block of the same place, which nobody else can mean by this name.
  if (const auto older = blocks_.find(owner); older != blocks_.end()) {
    gone_.push_back({owner.request, owner.column * rows_per_block_, rows_per_block_});
    owners_.erase(older->second);
  }
  owners_[block] = owner;
  blocks_[owner] = block;
}

// Blocks that a request has since this step. What a newcomer found there belongs to who made it.
void HostRows::take_blocks(std::size_t r) {
  const std::size_t live = step_->live.size();
  const std::size_t first = (to_size(group_) * live + r) * to_size(step_->columns);
  const std::int32_t count = step_->counts[to_size(group_) * live + r];
  const std::int64_t found = step_->joins[r] != 0 ? step_->num_computed[r] : 0;
  for (std::int32_t c = 0; c < count; ++c) {
    const std::int32_t block = step_->tables[first + to_size(c)];
    if (block <= AS_NULL_BLOCK) continue;
    const bool known = owners_.contains(block);
    const std::int64_t end = (std::int64_t{c} + 1) * rows_per_block_ * tokens_per_row_;
    const bool had = step_->joins[r] == 0 && c < step_->counts_before[to_size(group_) * live + r] &&
                     step_->tables_before[first + to_size(c)] == block;
    if (known && (had || end <= found)) continue;
    own(block, {step_->live[r], c});
  }
}

void HostRows::begin_step(const StepMetadata& step) {
  step_ = &step;
  gone_.clear();
  const std::size_t live = step.live.size();
  std::vector<std::int32_t> sampled(live, 0);
  for (const std::int32_t row : step.sample_request) ++sampled[to_size(row)];
  decodes_.assign(live, false);
  begins_.assign(live, false);
  for (std::size_t r = 0; r < live; ++r) {
    const auto request = to_size(step.live[r]);
    const std::int32_t tokens = step.num_scheduled_tokens[r];
    if (tokens == 0) continue;
    take_blocks(r);
    decodes_[r] = step.num_computed[r] >= prompts_[request] && sampled[r] == tokens;
    begins_[r] = decodes_[r] && !was_decoding_[request];
    was_decoding_[request] = decodes_[r];
  }
  written_.clear();
  written_by_.assign(step.positions.size(), HostRow{-1, -1});
  for (std::size_t t = 0; t < step.positions.size(); ++t) {
    const std::int32_t r = step.token_to_req[t];
    const std::int64_t seen = step.positions[t] + 1;
    if (r < 0 || !decodes(r) || seen % tokens_per_row_ != 0) continue;
    written_by_[t] = row(r, seen / tokens_per_row_ - 1);
    written_.push_back(written_by_[t]);
  }
}

HostRow HostRows::row(std::int64_t r, std::int64_t entry) const {
  const auto row = to_size(r);
  const std::int64_t column = entry / rows_per_block_;
  const std::size_t first = (to_size(group_) * step_->live.size() + row) * to_size(step_->columns);
  const auto own = static_cast<std::int32_t>(entry);
  if (column >= step_->columns) return {step_->live[row], own};
  const auto owner = owners_.find(step_->tables[first + to_size(column)]);
  return {owner == owners_.end() ? step_->live[row] : owner->second.request, own};
}

std::int64_t HostRows::slot(const HostRow& row) const {
  const auto block = blocks_.find({row.request, row.row / rows_per_block_});
  if (block == blocks_.end()) return -1;
  return std::int64_t{block->second} * rows_per_block_ + row.row % rows_per_block_;
}

}  // namespace attnscope
