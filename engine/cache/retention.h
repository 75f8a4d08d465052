// Which blocks of a windowed group get a key: only those that a later hit can end on. A hit ends at
// a multiple of the groups' common alignment and needs one window before its end.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/cache/cache_switches.h"
#include "engine/cache/group_spec.h"

namespace attnscope {

class Retention {
 public:
  // interval: nullopt = every aligned end, 0 = only the ends given to keeps(), else one end per so
  // many tokens.
  Retention(const GroupSpec& spec, std::int64_t alignment, bool draft,
            std::optional<std::int64_t> interval);

  bool keeps_all() const { return keeps_all_; }
  // ends: token counts up to which a prefix is worth keeping besides the regular ends; only used
  // with an interval.
  bool keeps(std::int64_t entry, std::span<const std::int64_t> ends) const;
  bool uses_ends() const { return sparse_; }

 private:
  std::int64_t alignment_blocks_;
  std::int64_t period_ = 0;  // blocks from one regular end to the next; 0 = none
  std::int64_t need_;
  std::int64_t shift_;
  std::int64_t alignment_;
  bool sparse_;
  bool keeps_all_ = false;
};

}  // namespace attnscope
