#include "app/wiring/exchange_audit.h"

#include <fmt/format.h>

#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

std::vector<std::int64_t> slots_in(const as_tensor& slots) {
  std::vector<std::int64_t> out;
  for (std::int64_t t = 0; t < slots.shape[0]; ++t) out.push_back(*at<std::int64_t>(slots, t));
  return out;
}

}  // namespace

void ExchangeAudit::wrote(const as_tensor& slots, const as_tensor& pages) {
  slots_ = slots_in(slots);
  pages_ = slots_in(pages);
}

std::string ExchangeAudit::exchanged(const as_exchange_rows_params& params) const {
  for (std::int64_t t = 0; t < to_count(slots_.size()) && t < params.pages_to.shape[0]; ++t) {
    const std::int64_t written = slots_[to_size(t)], page = pages_[to_size(t)];
    const std::int64_t from = *at<std::int64_t>(params.fresh_from, t);
    const std::int64_t to = *at<std::int64_t>(params.pages_to, t);
    const bool back = written != page;
    if (from == (back ? written : -1) && to == (back ? page : -1)) continue;
    return fmt::format(
        "token {}: takes slot {} back to {}; its row was written to {} and belongs "
        "to {}",
        t, from, to, written, page);
  }
  return {};
}

}  // namespace attnscope
