#include "engine/session/verify/row_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// A slot, and what it must hold.
struct Looked {
  std::int64_t slot, holds;
  friend bool operator==(const Looked&, const Looked&) = default;
  struct Hash {
    std::size_t operator()(const Looked& l) const {
      constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
      const auto mixed = static_cast<std::uint64_t>(l.slot) * kOdd;
      return static_cast<std::size_t>(mixed ^ static_cast<std::uint64_t>(l.holds));
    }
  };
};

class Checker {
 public:
  Checker(const CacheSpec& spec, const as_cache& cache, const Shadow& shadow,
          const AddressSpace& space, const StepMetadata& step)
      : spec_(spec),
        cache_(cache),
        shadow_(shadow),
        space_(space),
        step_(step),
        recorded_(shadow, spec, cache) {
    total_slots_ = cache.data.shape[0] * cache.rows_per_block;
  }

  // expected: logical row that must be in the slot; -1 = any row of the same request.
  void look(std::int64_t token, std::int64_t slot, std::int64_t expected) {
    const std::int32_t request = request_of(token);
    if (!look_first(slot, expected >= 0 ? expected : -1 - request)) return;
    ++check_.rows;
    if (slot < 0 || slot >= total_slots_) {
      return complain(token, slot, fmt::format("is outside the cache of {} slots", total_slots_));
    }
    const std::int64_t held = shadow_.row_of(spec_, slot);
    if (held < 0) return complain(token, slot, "was never written");
    const int ratio = row_ratio(spec_);
    const std::int64_t row = expected < 0 ? shadow_.row_of(spec_, slot, request)
                             : shadow_.holds(spec_, slot, expected) ? expected
                                                                    : -1;
    if (row < 0) {
      return complain(token, slot,
                      fmt::format("holds logical row {}, not {} of request {}; last written in "
                                  "step {}",
                                  held, expected >= 0 ? fmt::format("row {}", expected) : "a row",
                                  request, shadow_.written(spec_, held)));
    }
    if (!recorded_.matches(slot, row)) {
      complain(token, slot,
               fmt::format("holds other bytes than request {} {} {} wrote in step {}",
                           space_.request_of(held, ratio), ratio == 1 ? "position" : "entry",
                           row - space_.base(request, ratio), shadow_.written(spec_, row)));
    }
  }

  // A row that is moved, whoever's: what was written there.
  void look_at_moved(std::int64_t n, std::int64_t slot) {
    if (!look_first(slot, -1)) return;
    ++check_.rows;
    const std::int64_t held = slot < total_slots_ ? shadow_.row_of(spec_, slot) : -1;
    if (held >= 0 && recorded_.matches(slot, held)) return;
    if (check_.bad++ > 0) return;
    check_.note = fmt::format(
        "{} cache, move {}: slot {} (block {}, row {}) {}", spec_.name, n, slot,
        slot / cache_.rows_per_block, slot % cache_.rows_per_block,
        slot >= total_slots_ ? fmt::format("is outside the cache of {} slots", total_slots_)
        : held < 0
            ? std::string("was never written")
            : fmt::format("holds other bytes than were written for logical row {} in step {}", held,
                          shadow_.written(spec_, held)));
  }

  // Of a token that is to see so many rows and sees others.
  void sees(std::int64_t token, std::int64_t rows, std::int64_t must) {
    if (rows == must || check_.bad++ > 0) return;
    check_.note = fmt::format("{} cache, token {} (position {}): sees {} rows of its chunk, not {}",
                              spec_.name, token, step_.positions[static_cast<std::size_t>(token)],
                              rows, must);
  }

  RowCheck result() { return check_; }

 private:
  std::int32_t request_of(std::int64_t token) const {
    const auto row = static_cast<std::size_t>(step_.token_to_req[static_cast<std::size_t>(token)]);
    return step_.live[row];
  }

  // Whether this is new.
  bool look_first(std::int64_t slot, std::int64_t holds) {
    return seen_.insert({slot, holds}).second;
  }

  void complain(std::int64_t token, std::int64_t slot, const std::string& what) {
    if (check_.bad++ > 0) return;
    check_.note =
        fmt::format("{} cache, token {} (position {}): slot {} (block {}, row {}) {}", spec_.name,
                    token, step_.positions[static_cast<std::size_t>(token)], slot,
                    slot / cache_.rows_per_block, slot % cache_.rows_per_block, what);
  }

  const CacheSpec& spec_;
  const as_cache& cache_;
  const Shadow& shadow_;
  const AddressSpace& space_;
  const StepMetadata& step_;
  std::int64_t total_slots_ = 0;
  const ShadowRows recorded_;
  std::unordered_set<Looked, Looked::Hash> seen_;
  RowCheck check_;
};

// Whether every token sees the rows of its chunk up to its own: those that a table leaves out are
// not among what is read.
void check_chunks(const OpParams& params, const as_cache_access& access, const GroupSpec& kept,
                  const StepMetadata& step, Checker& checker) {
  const as_tensor &rows = params.tensor(access.token_to_req), &lens = params.tensor(access.lens);
  for (std::int64_t t = 0; t < rows.shape[0]; ++t) {
    const std::int64_t row = *at<std::int32_t>(rows, t);
    const std::int64_t position = step.positions[static_cast<std::size_t>(t)];
    const bool there = row >= 0 && row < lens.shape[0];
    const std::int64_t end = *at<std::int64_t>(params.tensor(access.positions), t) + 1;
    checker.sees(t, there ? std::min<std::int64_t>(end, *at<std::int32_t>(lens, row)) : 0,
                 position + 1 - kept.first_seen(position));
  }
}

}  // namespace

std::string slot_of_cache(const CacheSpec& spec, std::int64_t slot) {
  return fmt::format("slot {} (block {}, row {}) of the {} cache", slot, slot / spec.rows_per_block,
                     slot % spec.rows_per_block, spec.name);
}

std::string content_of(const CacheSpec& spec, const AddressSpace& space, std::int64_t row) {
  const int ratio = row_ratio(spec);
  const std::int32_t request = space.request_of(row, ratio);
  return fmt::format("{} {} of request {}", ratio == 1 ? "position" : "entry",
                     row - space.base(request, ratio), request);
}

RowCheck check_rows_read(const OpParams& params, std::size_t cache_offset, const CacheSpec& spec,
                         const as_cache& cache, const Shadow& shadow, const AddressSpace& space,
                         const StepMetadata& step) {
  Checker checker(spec, cache, shadow, space, step);
  const auto base = [&](std::int64_t token) {
    const auto row = static_cast<std::size_t>(step.token_to_req[static_cast<std::size_t>(token)]);
    return space.base(step.live[row], row_ratio(spec));
  };
  const as_cache_access* access = RowAccess::find(params.op(), cache_offset);
  if (access == nullptr) return checker.result();
  if (access->by == AS_BY_SLOTS) {
    RowAccess::for_each(params.data(), *access,
                        [&](const RowVisit& v) { checker.look_at_moved(v.token, v.slot); });
    return checker.result();
  }
  // Rows of a table that ends with a chunk are counted from the chunk's first one.
  const bool local = access->chunk != 0 && spec.retention.kind == GroupKind::kChunked;
  std::int64_t token = -1, first = 0;  // of the token's request, or of its chunk
  RowAccess::for_each(params.data(), *access, [&](const RowVisit& v) {
    if (!RowAccess::by_table(*access)) return checker.look(v.token, v.slot, -1);
    if (v.token != token) {
      first = base(token = v.token);
      if (local)
        first += spec.retention.first_seen(step.positions[static_cast<std::size_t>(token)]);
    }
    checker.look(v.token, v.slot, first + v.place);
  });
  if (local) check_chunks(params, *access, spec.retention, step, checker);
  return checker.result();
}

std::string check_places(const as_exchange_rows_params& p, const CacheSpec& spec,
                         const Shadow& shadow, const AddressSpace& space) {
  // Where the row of a slot comes from in this call.
  std::map<std::int64_t, std::int64_t> from;
  for (std::int64_t t = 0; t < p.pages_to.shape[0]; ++t) {
    from[*at<std::int64_t>(p.pages_to, t)] = *at<std::int64_t>(p.fresh_from, t);
  }
  for (std::int64_t m = 0; m < p.pool_to.shape[0]; ++m) {
    from[*at<std::int64_t>(p.pool_to, m)] = *at<std::int64_t>(p.missed_from, m);
  }
  from.erase(-1);
  const auto row_in = [&](std::int64_t slot) {
    const auto moved = from.find(slot);
    return shadow.row_of(spec, moved == from.end() ? slot : moved->second);
  };
  for (std::int64_t t = 0; t < p.places.shape[0]; ++t) {
    for (std::int64_t k = 0; k < p.places.shape[1]; ++k) {
      const std::int32_t place = *at<std::int32_t>(p.places, t, k);
      if (place < 0) continue;
      const std::int64_t row = row_in(*at<std::int32_t>(p.selected, t, k)), found = row_in(place);
      if (row >= 0 && row == found) continue;
      const int ratio = row_ratio(spec);
      const auto named = [&](std::int64_t r) {
        if (r < 0) return std::string("no row");
        const std::int32_t request = space.request_of(r, ratio);
        return fmt::format("row {} of request {}", r - space.base(request, ratio), request);
      };
      return fmt::format(
          "token {}, place {}: {} is said to lie in slot {} of the pool, which holds "
          "{}",
          t, k, named(row), place, named(found));
    }
  }
  return {};
}

void logical_top_k_slots(const as_topk_to_slots_params& params, const LogicalMetadata& logical) {
  // Rows of the cache that layers select from.
  const auto from = std::ranges::find(logical.own, true, &StepTensor::selected_from);
  const auto& table = logical.table(static_cast<int>(from->tokens_per_row));
  for (std::int64_t t = 0; t < params.indices.shape[0]; ++t) {
    const auto request = static_cast<std::size_t>(*at<std::int32_t>(params.token_to_req, t));
    std::int32_t len = 0;
    for (std::int64_t k = 0; k < params.indices.shape[1]; ++k) {
      const std::int32_t entry = *at<std::int32_t>(params.indices, t, k);
      *at<std::int32_t>(params.slots, t, k) = entry < 0 ? -1 : table[request] + entry;
      len += entry >= 0 ? 1 : 0;
    }
    *at<std::int32_t>(params.lens, t) = len;
  }
}

}  // namespace attnscope
