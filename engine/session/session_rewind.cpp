// Going back: rewind points at step boundaries, restore, replay, and the digest that proves it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "engine/session/rewind_points.h"
#include "engine/session/step/between_ops.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

// Order of cursors inside one step.
bool before(const Cursor& a, const Cursor& b) {
  const auto rank = [](const Cursor& c) {
    return std::tuple(c.after_layers ? 2 : c.layer >= 0 ? 1 : 0, c.layer, c.op);
  };
  return rank(a) < rank(b);
}

}  // namespace

void Session::save_rewind_point() {
  if (rewind_points_->has(cursor_.step)) return;
  auto made = make_rewind_point();
  // What a lost device has not given back cannot be kept.
  if (!device_ || !device_->residency().lost()) rewind_points_->add(std::move(made));
}

std::unique_ptr<RewindPoint> Session::make_rewind_point() const {
  std::unique_ptr<RewindPoint> c(new RewindPoint{cursor_.step,
                                                 *serving_,
                                                 *judge_,
                                                 tables_,
                                                 serving_->blocks_with_content(),
                                                 {},
                                                 tier_,
                                                 swapped_});
  const std::vector<BlockOwner> owners = serving_->owners();
  const auto stride = static_cast<std::size_t>(slab_->block_stride());
  const std::array<const RewindPoint*, 2> around = {rewind_points_->at_or_before(cursor_.step),
                                                    rewind_points_->after(cursor_.step)};
  c->blocks.reserve(c->ids.size());
  for (const std::int32_t id : c->ids) {
    const std::uint8_t* bytes = slab_->block(id);
    SlotMarks marks = verifier_->shadow().marks(owners[static_cast<std::size_t>(id)].group, id);
    std::shared_ptr<const KeptBlock> kept;
    for (const RewindPoint* other : around) {
      if (kept || other == nullptr) continue;
      auto known = other->find(id);
      if (known && known->marks == marks &&
          std::memcmp(known->content.data(), bytes, stride) == 0) {
        kept = std::move(known);
      }
    }
    if (!kept) {
      kept = std::make_shared<const KeptBlock>(
          KeptBlock{std::vector<std::uint8_t>(bytes, bytes + stride), std::move(marks)});
    }
    c->blocks.push_back(std::move(kept));
  }
  return c;
}

void Session::restore(const RewindPoint& c) {
  *serving_ = c.serving;
  *judge_ = c.judge;
  guard_.attach(*serving_, guard_.level());
  tables_ = c.tables;
  if (device_) device_->residency().host_wrote_all_blocks();
  restore_rows(c);
  swapped_ = c.swapped;
  tier_ = c.tier;
  if (tier_) tier_->refill(*slab_, verifier_->shadow());
  refill_ranks();
  const BetweenOps* between = lanes_.between();
  if (between != nullptr && between->restored != nullptr) between->restored(*slab_);
  cursor_ = {c.step, -1, 0, false};
  in_step_ = false;
  check_restored();
  ran_any_ = false;
  current_ = {};
  cut_history(c.step);
  if (observer_ != nullptr) observer_->went_back(*this);
}

ReplayWatch::State Session::replay_state() const {
  const std::span ropes = std::span(rope_tables_).first(parts_.ropes.size());
  return ReplayWatch::state_of(*serving_, tables_, ropes, parts_.layout, *slab_, swapped_,
                               parts_.threads);
}

void Session::rest_old_rows() { verifier_->rest_again(*serving_); }

void Session::check_restored() {
  verifier_->went_back();
  token_watch_->went_back(serving_->requests());
  if (!keeps_digests()) return;
  auto wrong =
      replay_watch_.went_to(cursor_.step, replay_state(), parts_.layout, parts_.config.layers);
  if (!wrong) return;
  const std::string row = changed_row(*serving_, parts_.layout, *slab_, verifier_->shadow(),
                                      *space_, parts_.config.layers);
  if (!row.empty()) wrong->note += "; the first row that differs: " + row;
  replay_faults_.push_back(wrong->note);
  verifier_->found(std::move(*wrong));
}

void Session::restore_rows(const RewindPoint& c) {
  Shadow& shadow = verifier_->shadow();
  shadow.forget_block(AS_NULL_BLOCK);
  for (std::int32_t b = serving_->first_block(); b < serving_->end_block(); ++b) {
    shadow.forget_block(b);
  }
  const std::vector<BlockOwner> owners = serving_->owners();
  const auto stride = static_cast<std::size_t>(slab_->block_stride());
  for (std::size_t i = 0; i < c.ids.size(); ++i) {
    const KeptBlock& kept = *c.blocks[i];
    std::memcpy(slab_->block(c.ids[i]), kept.content.data(), stride);
    shadow.restore_marks(owners[static_cast<std::size_t>(c.ids[i])].group, c.ids[i], kept.marks);
  }
  // First what each slot was written for, then what the requests' tables say: of a row that was
  // computed twice the request has the newer one.
  for (const CacheSpec& spec : parts_.layout.specs) {
    const as_cache paged = slab_->cache(spec);
    for (const std::int32_t id : c.ids) {
      if (owners[static_cast<std::size_t>(id)].group != spec.group) continue;
      for (std::int64_t r = 0; r < spec.rows_per_block; ++r) {
        const std::int64_t slot = std::int64_t{id} * spec.rows_per_block + r;
        shadow.restore_row(spec, paged, slot, shadow.row_of(spec, slot));
      }
    }
    const int ratio = row_ratio(spec);
    for (const Request& request : serving_->requests()) {
      const auto table = serving_->table(request.id, spec.group);
      for (std::size_t i = 0; i < table.size(); ++i) {
        if (table[i] == AS_NULL_BLOCK) continue;
        const std::int64_t first = static_cast<std::int64_t>(i) * spec.rows_per_block;
        for (std::int64_t r = 0; r < spec.rows_per_block; ++r) {
          if (first + r >= request.computed / ratio) break;
          shadow.restore_row(spec, paged, std::int64_t{table[i]} * spec.rows_per_block + r,
                             space_->base(request.id, ratio) + first + r);
        }
      }
    }
  }
}

void Session::cut_history(std::int64_t step) {
  while (static_cast<std::int64_t>(history_.size()) > step) {
    ahead_.push_front(std::move(history_.back()));
    history_.pop_back();
  }
  while (static_cast<std::int64_t>(history_.size()) < step) {
    history_.push_back(std::move(ahead_.front()));
    ahead_.pop_front();
  }
}

RewindUse Session::rewind_use() const {
  RewindUse use;
  use.count = static_cast<std::int64_t>(rewind_points_->all().size());
  use.bytes = rewind_points_->bytes();
  use.budget = rewind_points_->budget();
  use.longest_replay =
      rewind_points_->longest_replay(static_cast<std::int64_t>(history_.size() + ahead_.size()));
  return use;
}

void Session::set_rewind_budget(std::int64_t bytes) { rewind_points_->set_budget(bytes); }

Result<void> Session::seek(const Cursor& target) {
  const RewindPoint* nearest = rewind_points_->at_or_before(target.step);
  if (nearest == nullptr) {
    return bad_input(fmt::format("no step {} to go to", target.step), "steps count from 0");
  }
  const bool ahead = target.step > cursor_.step ||
                     (target.step == cursor_.step && (!in_step_ || !before(target, cursor_)));
  if (!ahead || nearest->step > cursor_.step) restore(*nearest);
  while (cursor_.step < target.step && !finished() && !cancelled_) {
    if (auto ok = step(); !ok) return ok;
  }
  while (cursor_ != target && cursor_.step == target.step && !finished() && !cancelled_) {
    if (auto ok = op(); !ok) return ok;
  }
  if (cancelled_) return {};
  if (cursor_ != target) {
    return bad_input(fmt::format("no op at step {}, layer index {}, op index {}", target.step,
                                 target.layer, target.op));
  }
  return {};
}

Result<void> Session::change_lanes(const LaneRegistry& registry,
                                   const std::vector<std::string>& lanes, std::int64_t step) {
  auto selector = LaneSelector::make(registry, lanes);
  if (!selector) return selector.error();
  if (auto ok = seek({step, -1, 0, false}); !ok) return ok;
  if (cursor_.step != step) return {};  // cancelled on the way
  lanes_from_.erase(lanes_from_.lower_bound(step), lanes_from_.end());
  lanes_from_.emplace(step, std::move(*selector));
  rewind_points_->drop_after(step);
  replay_watch_.forget_after(step);
  token_watch_->forget_plain();
  ahead_.clear();
  if (observer_ != nullptr) observer_->lanes_changed(*this);
  return {};
}

Result<void> Session::step_back() {
  const std::int64_t step = in_step_ ? cursor_.step : std::max<std::int64_t>(0, cursor_.step - 1);
  return seek({step, -1, 0, false});
}

Cursor Session::cursor_before() const {
  Cursor c = cursor_;
  const std::vector<as_op_id>& head = parts_.graph->after.ops();
  if (!in_step_) {
    const as_op_id last = history_.back().timings.back().op;
    --c.step;
    c.after_layers = history_.back().tokens > 0;  // else it ended before the layers
    c.layer = c.after_layers ? parts_.graph->draft_layer : -1;
    const std::vector<as_op_id>& ops = ops_at(c);
    const auto at = std::ranges::find(ops, last);
    c.op = at == ops.end() ? 0 : static_cast<int>(at - ops.begin()) + 1;
  }
  if (c.op > 0) {
    --c.op;
    if (c.layer < 0 && !c.after_layers) {
      while (!has_op(ops_at(c)[static_cast<std::size_t>(c.op)])) --c.op;
    }
    return c;
  }
  if (c.layer >= 0 && c.after_layers && !metadata_.sample_rows.empty()) {
    return {c.step, -1, static_cast<int>(head.size()) - 1, true};
  }
  c.layer = c.after_layers ? parts_.config.main_layers() - 1 : c.layer - 1;
  c.after_layers = false;
  c.op = static_cast<int>(ops_at(c).size()) - 1;
  return c;
}

Result<void> Session::op_back() {
  const bool at_start = cursor_ == Cursor{cursor_.step, -1, 0, false};
  // Nothing ran yet, or the first op of this step failed.
  if (at_start && (in_step_ || cursor_.step == 0)) return {};
  return seek(cursor_before());
}

std::uint64_t Session::digest() const {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](const void* data, std::size_t bytes) {
    const auto* p = static_cast<const std::uint8_t*>(data);
    for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ p[i]) * 0x100000001b3u;
  };
  for (const Request& request : serving_->requests()) {
    add(request.tokens.data(), request.tokens.size() * sizeof(request.tokens[0]));
    add(&request.computed, sizeof(request.computed));
  }
  // Bytes that the block's group holds; padding between pages is nobody's.
  const std::vector<BlockOwner> owners = serving_->owners();
  for (const std::int32_t id : serving_->blocks_with_content()) {
    const BlockOwner& owner = owners[static_cast<std::size_t>(id)];
    for (const std::int32_t value : {owner.request, owner.group, owner.index}) {
      add(&value, sizeof(value));
    }
    const CacheGroup& group = parts_.layout.groups[static_cast<std::size_t>(owner.group)];
    add(slab_->block(id), static_cast<std::size_t>(group.bytes));
  }
  for (const auto& [host, block] : swapped_.blocks()) {
    for (const std::int32_t value : {host, block.request, block.group, block.index}) {
      add(&value, sizeof(value));
    }
    const CacheGroup& group = parts_.layout.groups[static_cast<std::size_t>(block.group)];
    add(block.kept->content.data(), static_cast<std::size_t>(group.bytes));
  }
  return hash;
}

}  // namespace attnscope
