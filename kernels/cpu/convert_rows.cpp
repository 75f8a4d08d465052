// convert_rows: rows of keys or values in another format.
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

void convert_rows(const as_convert_rows_params& p, const as_call* call, Check&) {
  const KvRows from(p.from, p.from_scale), to(p.to, p.to_scale);
  const std::int64_t heads = as_cache_heads(&p.from), size = p.from.width / heads;
  const simd::Kernels& simd = simd::kernels();
  parallel_for(call, p.slots.shape[0], 8, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> numbers(static_cast<std::size_t>(size));
    std::vector<std::uint16_t> row(numbers.size());
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t slot = *at<std::int64_t>(p.slots, n);
      if (slot < 0) continue;
      for (std::int64_t h = 0; h < heads; ++h) {
        from.read(simd, slot / from.rows, slot % from.rows, h, size, numbers.data());
        for (std::size_t i = 0; i < row.size(); ++i) {
          const bool nan = numbers[i] != numbers[i];
          row[i] = nan ? std::uint16_t{0x7fc0} : float_to_bf16(numbers[i]);
        }
        to.put(slot, h, row.data(), size);
      }
    }
  });
}

}  // namespace attnscope::cpu
