// Quantised rows of keys and values: what paged_params.h says of them, in float64 rounded to fp32
// where it says so.
#pragma once

#include <optional>
#include <string>

#include "kernels/params/tensor.h"
#include "reference/torch/numbers.h"

namespace attnscope::reference {

struct KvCode {
  enum Kind { kE4m3, kE5m2, kInt8 };
  enum Scales { kOne, kOfHeads, kInRows };
  Kind kind;
  Scales scales;
};

// Of a record; nothing where its rows are not such codes.
std::optional<KvCode> kv_code_of(std::int32_t record);

// The scales that such a record has beside the cache [1] or [heads], undefined where it has none.
// Throws where they are not as it asks; name: of the cache.
Tensor kv_scales(std::int32_t record, const as_tensor& given, const std::string& name,
                 std::int64_t heads);

// [N, heads * D] as rows in logical form [N, bytes], and back.
Tensor encode_kv(const KvCode& code, const Tensor& values, std::int64_t heads,
                 const Tensor& scales);
Tensor decode_kv(const KvCode& code, const Tensor& rows, std::int64_t heads, const Tensor& scales);

}  // namespace attnscope::reference
