// Rows that a request found computed: its logical histories take over what the donor wrote, so that
// references see the whole of its past without a block table.
#pragma once

#include <vector>

#include "engine/sched/serving.h"
#include "engine/session/step/history.h"

namespace attnscope {

class PrefixReuse {
 public:
  explicit PrefixReuse(const AddressSpace& space) : space_(space) {}

  void begin_step(std::vector<SharedBlock> blocks) { blocks_ = std::move(blocks); }
  // Blocks of one spec's group: those that were complete before the step, or (this_step) those that
  // the op that just ran completed. histories: of the free-running references; may hold nullptr.
  void apply(const CacheSpec& spec, const as_cache& paged, bool this_step, Shadow& shadow,
             const std::vector<History*>& histories) const;
  // Rows that were completed this step, in one reference's history alone: the shadow has taken them
  // over before.
  void follow(const CacheSpec& spec, const Shadow& shadow, History& history) const;
  bool empty() const { return blocks_.empty(); }

 private:
  const AddressSpace& space_;
  std::vector<SharedBlock> blocks_;
};

}  // namespace attnscope
