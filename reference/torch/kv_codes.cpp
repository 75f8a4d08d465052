#include "reference/torch/kv_codes.h"

#include <limits>

#include "reference/torch/tensors.h"

namespace attnscope::reference {

namespace {

constexpr double kLeastScale = 0x1p-126;

// Scales [N, G, 1] and zero points of heads x [N, G, D] that have neither NaN nor infinities; NaN
// and 0 of the others.
struct OfHead {
  Tensor scale, zero;
};
OfHead of_heads(KvCode::Kind kind, const Tensor& x) {
  const Tensor finite = x.isfinite().all(2, true);
  const Tensor known = x.nan_to_num(0, 0, 0);
  OfHead made;
  made.zero = at::zeros_like(finite, x.options());
  if (kind == KvCode::kInt8) {
    const Tensor high = known.amax(2, true).clamp_min(0), low = known.amin(2, true).clamp_max(0);
    const Tensor apart = round_to_fp32(high / 255) - round_to_fp32(low / 255);
    made.scale = round_to_fp32(apart).clamp_min(kLeastScale);
    made.zero = -128 - round_to_fp32(low / made.scale).round();
  } else {
    const double most = kind == KvCode::kE4m3 ? 448 : 57344;
    made.scale = round_to_fp32(known.abs().amax(2, true) / most).clamp_min(kLeastScale);
  }
  const Tensor others = finite.logical_not();
  made.scale = made.scale.masked_fill(others, std::numeric_limits<double>::quiet_NaN());
  made.zero = made.zero.masked_fill(others, 0);
  return made;
}

// fp32 numbers as bytes of the last dimension.
Tensor fp32_bytes(const Tensor& x) { return x.to(at::kFloat).contiguous().view(at::kByte); }

Tensor codes_of_kind(KvCode::Kind kind, const Tensor& x, const Tensor& zero) {
  if (kind == KvCode::kE4m3) return e4m3_codes(x);
  if (kind == KvCode::kE5m2) return e5m2_codes(x);
  return (x.nan_to_num(0).round() + zero).clamp(-128, 127).to(at::kChar).view(at::kByte);
}

Tensor values_of_kind(KvCode::Kind kind, const Tensor& codes) {
  if (kind == KvCode::kE4m3) return e4m3_values(codes);
  if (kind == KvCode::kE5m2) return e5m2_values(codes);
  return codes.contiguous().view(at::kChar).to(at::kDouble);
}

}  // namespace

std::optional<KvCode> kv_code_of(std::int32_t record) {
  switch (record & ~AS_RECORD_HND) {
    case AS_RECORD_FP8_TENSOR:
      return KvCode{KvCode::kE4m3, KvCode::kOne};
    case AS_RECORD_FP8_HEAD:
      return KvCode{KvCode::kE4m3, KvCode::kOfHeads};
    case AS_RECORD_FP8_TOKEN_HEAD:
      return KvCode{KvCode::kE4m3, KvCode::kInRows};
    case AS_RECORD_E5M2_TENSOR:
      return KvCode{KvCode::kE5m2, KvCode::kOne};
    case AS_RECORD_E5M2_HEAD:
      return KvCode{KvCode::kE5m2, KvCode::kOfHeads};
    case AS_RECORD_E5M2_TOKEN_HEAD:
      return KvCode{KvCode::kE5m2, KvCode::kInRows};
    case AS_RECORD_INT8_TOKEN_HEAD:
      return KvCode{KvCode::kInt8, KvCode::kInRows};
    default:
      return {};
  }
}

Tensor kv_scales(std::int32_t record, const as_tensor& given, const std::string& name,
                 std::int64_t heads) {
  const auto code = kv_code_of(record);
  if (!code || code->scales == KvCode::kInRows) {
    if (present(given)) throw BadInput(name + ": rows of this record have no scale beside them");
    return {};
  }
  const std::string own = name + " (its scale)";
  return floats(given, own.c_str(), {code->scales == KvCode::kOne ? 1 : heads});
}

Tensor encode_kv(const KvCode& code, const Tensor& values, std::int64_t heads,
                 const Tensor& scales) {
  const Tensor x = values.reshape({values.size(0), heads, -1});
  OfHead head;
  if (code.scales == KvCode::kInRows) {
    head = of_heads(code.kind, x);
  } else {
    head.scale = scales.to(x.device()).view({1, -1, 1});
  }
  const Tensor divided = round_to_fp32(x / head.scale);
  Tensor codes = codes_of_kind(code.kind, divided, head.zero);
  if (code.scales != KvCode::kInRows) return codes.flatten(1);
  codes = codes.masked_fill(head.scale.isnan(), 0).flatten(1);
  const Tensor behind =
      code.kind == KvCode::kInt8 ? at::cat({head.scale, head.zero}, 2) : head.scale;
  return at::cat({codes, fp32_bytes(behind.flatten(1))}, 1);
}

Tensor decode_kv(const KvCode& code, const Tensor& rows, std::int64_t heads, const Tensor& scales) {
  if (code.scales != KvCode::kInRows) {
    const Tensor codes = rows.reshape({rows.size(0), heads, -1});
    const Tensor scale = scales.to(rows.device()).view({1, -1, 1});
    return (values_of_kind(code.kind, codes) * scale).flatten(1);
  }
  const std::int64_t others = code.kind == KvCode::kInt8 ? 2 : 1, bytes = 4 * others * heads;
  const Tensor behind = rows.slice(1, rows.size(1) - bytes).contiguous().view(at::kFloat);
  const Tensor numbers = behind.to(at::kDouble).view({rows.size(0), heads, others});
  const Tensor codes = rows.slice(1, 0, rows.size(1) - bytes).reshape({rows.size(0), heads, -1});
  Tensor values = values_of_kind(code.kind, codes);
  if (others == 2) values = values - numbers.narrow(2, 1, 1);
  return (values * numbers.narrow(2, 0, 1)).flatten(1);
}

}  // namespace attnscope::reference
