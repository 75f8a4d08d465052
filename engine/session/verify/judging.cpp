#include "engine/session/verify/judging.h"

#include <algorithm>
#include <cstring>

#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Larger ones take as long to copy as what goes on meanwhile: they are looked at where they are.
constexpr std::size_t kMostCopied = std::size_t{4} << 20;

// From the first element to behind the last one.
std::size_t span_of(const as_tensor& t) {
  if (as_tensor_numel(&t) == 0) return 0;
  std::int64_t last = 0;
  for (std::int32_t axis = 0; axis < t.rank; ++axis) last += (t.shape[axis] - 1) * t.stride[axis];
  return to_size((last + 1) * as_dtype_size(t.dtype));
}

template <class Visit>
void each_tensor(const OpParams& params, const Visit& visit) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind == AS_TAP_TENSOR && present(params.tensor(tap.offset))) visit(i, tap);
  }
}

}  // namespace

bool writes_to(const OpParams& op, const OpParams& other) {
  bool found = false;
  each_tensor(op, [&](std::uint32_t, const as_tap_info& written) {
    if (written.direction != AS_TAP_OUT) return;
    const as_tensor& w = op.tensor(written.offset);
    const auto* const begin = static_cast<const char*>(w.data);
    each_tensor(other, [&](std::uint32_t, const as_tap_info& tap) {
      const as_tensor& t = other.tensor(tap.offset);
      const auto* const at = static_cast<const char*>(t.data);
      found = found || (at < begin + span_of(w) && begin < at + span_of(t));
    });
  });
  return found;
}

bool OpCopies::take(OpParams& params, const std::function<bool(const as_tensor&)>& is_constant) {
  std::size_t bytes = 0;
  each_tensor(params, [&](std::uint32_t, const as_tap_info& tap) {
    const as_tensor& t = params.tensor(tap.offset);
    if (!is_constant(t)) bytes += span_of(t);
  });
  if (bytes > kMostCopied) return false;
  memory_.resize(std::max<std::size_t>(memory_.size(), params.info().num_taps));
  each_tensor(params, [&](std::uint32_t i, const as_tap_info& tap) {
    as_tensor& t = params.tensor(tap.offset);
    const std::size_t span = span_of(t);
    if (span == 0 || is_constant(t)) return;
    void* copy = memory_[i].make(AS_U8, {to_count(span)}).data;
    std::memcpy(copy, t.data, span);
    t.data = copy;
  });
  return true;
}

}  // namespace attnscope
