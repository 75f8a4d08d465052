#include "app/wiring/op_audit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

const as_tap_info* audited_tap(const OpParams& params, const char* name) {
  const as_op_info& info = params.info();
  const auto* end = info.taps + info.num_taps;
  const auto* tap = std::find_if(info.taps, end,
                                 [&](const as_tap_info& t) { return !std::strcmp(t.name, name); });
  return tap == end ? nullptr : tap;
}

const void* audited_data(const OpParams& params, const as_tap_info& tap) {
  return tap.kind == AS_TAP_CACHE ? params.cache(tap.offset).data.data
                                  : params.tensor(tap.offset).data;
}

TensorEntry audited_entry(const as_tensor& t, ElementType type, std::int64_t first,
                          std::int64_t rows) {
  TensorEntry entry;
  const std::int64_t columns = t.rank > 1 ? t.shape[t.rank - 1] : 1;
  entry.name = "given";
  entry.type = type;
  entry.shape = t.rank > 1 ? std::vector{rows, columns} : std::vector{rows};
  entry.elements = rows * columns;
  const std::int64_t size = element_bits(type) / 8;
  entry.bytes = to_size(entry.elements * size);
  entry.data = static_cast<const std::uint8_t*>(t.data) + first * columns * size;
  return entry;
}

bool is_gapless(const as_tensor& t) {
  std::int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    if (t.shape[i] > 1 && t.stride[i] != stride) return false;
    stride *= t.shape[i];
  }
  return true;
}

bool turns_by(const as_tensor& table, const std::vector<double>& frequencies) {
  const std::int64_t n = to_count(frequencies.size());
  if (table.shape[1] != 2 * n) return false;
  for (std::int64_t t = 0; t < table.shape[0]; t += t < 64 ? 1 : 61) {
    const float* row = at<float>(table, t);
    for (std::int64_t i = 0; i < n; ++i) {
      const double angle =
          static_cast<double>(static_cast<float>(t) * static_cast<float>(frequencies[to_size(i)]));
      const double bound = 1e-6 + std::ldexp(angle, -21);
      if (!(std::fabs(static_cast<double>(row[i]) - std::cos(angle)) <= bound) ||
          !(std::fabs(static_cast<double>(row[n + i]) - std::sin(angle)) <= bound)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace attnscope
