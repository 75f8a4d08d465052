#include "engine/cache/retention.h"

namespace attnscope {

Retention::Retention(const GroupSpec& spec, std::int64_t alignment, bool draft,
                     std::optional<std::int64_t> interval)
    : alignment_blocks_(alignment / spec.block_tokens),
      need_(window_blocks(spec, draft)),
      shift_(draft ? 1 : 0),
      alignment_(alignment),
      sparse_(interval.has_value()) {
  period_ = sparse_ ? *interval / spec.block_tokens : alignment_blocks_;
  keeps_all_ = spec.kind != GroupKind::kSliding || (period_ > 0 && need_ >= period_) ||
               (!sparse_ && alignment_blocks_ == 1);
}

bool Retention::keeps(std::int64_t entry, std::span<const std::int64_t> ends) const {
  if (keeps_all_) return true;
  if (period_ > 0 && entry >= shift_ && (entry - shift_) % period_ >= period_ - need_) return true;
  if (!sparse_) return false;
  for (const std::int64_t tokens : ends) {
    const std::int64_t end = tokens / alignment_ * alignment_blocks_ + shift_;
    if (entry >= end - need_ && entry < end) return true;
  }
  return false;
}

}  // namespace attnscope
