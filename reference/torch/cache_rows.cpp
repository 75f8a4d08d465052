#include "reference/torch/cache_rows.h"

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/layout/mla_rows.h"
#include "kernels/layout/records.h"
#include "kernels/params/row_format.h"
#include "reference/torch/kv_codes.h"

namespace attnscope::reference {

namespace {

// x [..., n] as [..., n / block, block].
Tensor in_blocks_of(const Tensor& x, std::int64_t block) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() /= block;
  shape.push_back(block);
  return x.reshape(shape);
}

// Numbers of another size in the bytes of the last dimension, and back.
Tensor numbers_in(const Tensor& bytes, at::ScalarType type) {
  return doubles(bytes.contiguous().view(type));
}
Tensor bytes_of(const Tensor& numbers) { return numbers.contiguous().view(at::kByte); }

Tensor encode_latent(const Tensor& values, const Quantiser& quantiser) {
  const Fp8 nope =
      encode_fp8(values.narrow(1, 0, AS_NOPE_DIM), AS_QUANT_BLOCK, quantiser.scale_floor);
  const Tensor rope = stored_as(values.narrow(1, AS_NOPE_DIM, AS_ROPE_DIM), at::kBFloat16);
  const Tensor pad = at::zeros({values.size(0), 1}, nope.codes.options());
  return at::cat({nope.codes, bytes_of(rope), ue8m0_bytes(nope.exponents), pad}, 1);
}

Tensor decode_latent(const Tensor& record) {
  const Tensor scales = ue8m0_values(record.narrow(1, 576, AS_QUANT_BLOCKS));
  return at::cat({decode_fp8(record.narrow(1, 0, AS_NOPE_DIM), scales),
                  numbers_in(record.narrow(1, AS_NOPE_DIM, 2 * AS_ROPE_DIM), at::kBFloat16)},
                 1);
}

Tensor encode_latent_656(const Tensor& values, const Quantiser& quantiser) {
  const ScaledFp8 latent = encode_fp8_by(
      quantiser.scale_rule, values.narrow(1, 0, AS_LATENT_656_CODES), AS_LATENT_656_BLOCK);
  const Tensor rope = values.slice(1, AS_LATENT_656_CODES);
  return at::cat({latent.codes, bytes_of(latent.scales.to(at::kFloat)),
                  bytes_of(stored_as(rope, at::kBFloat16))},
                 1);
}

Tensor decode_latent_656(const Tensor& record) {
  const Tensor scales = record.slice(1, AS_LATENT_656_SCALES, AS_LATENT_656_ROPE);
  return at::cat(
      {decode_fp8(record.narrow(1, 0, AS_LATENT_656_CODES), numbers_in(scales, at::kFloat)),
       numbers_in(record.slice(1, AS_LATENT_656_ROPE), at::kBFloat16)},
      1);
}

// [N,width] as records [N,bytes].
Tensor encode(std::int32_t record, const Tensor& values, const Quantiser& quantiser) {
  switch (record & ~AS_RECORD_HND) {
    case AS_RECORD_LATENT:
      return encode_latent(values, quantiser);
    case AS_RECORD_LATENT_656:
      return encode_latent_656(values, quantiser);
    case AS_RECORD_INDEX_FP8: {
      if (quantiser.scale_rule == AS_SCALE_FLOAT) {
        const ScaledFp8 row = encode_fp8_by(AS_SCALE_FLOAT, values, AS_INDEX_DIM);
        return at::cat({row.codes, bytes_of(row.scales.to(at::kFloat))}, 1);
      }
      const Fp8 row = encode_fp8(values, AS_INDEX_DIM, quantiser.scale_floor);
      return at::cat({row.codes, bytes_of(scale_of(row.exponents).to(at::kFloat))}, 1);
    }
    case AS_RECORD_INDEX_MXFP4: {
      const Mxfp4 row = encode_mxfp4(values, quantiser.fp4_rule);
      return at::cat({row.packed, row.scales}, 1);
    }
    case AS_RECORD_BF16:
      return bytes_of(stored_as(values, at::kBFloat16));
    case AS_RECORD_F16:
      return bytes_of(round_to_f16(values).to(at::kHalf));
    default:
      return bytes_of(values.to(at::kFloat));
  }
}

Tensor decode(std::int32_t record, const Tensor& rows) {
  switch (record & ~AS_RECORD_HND) {
    case AS_RECORD_LATENT:
      return decode_latent(rows);
    case AS_RECORD_LATENT_656:
      return decode_latent_656(rows);
    case AS_RECORD_INDEX_FP8:
      return decode_fp8(rows.narrow(1, 0, AS_INDEX_DIM),
                        numbers_in(rows.narrow(1, AS_INDEX_DIM, 4), at::kFloat));
    case AS_RECORD_INDEX_MXFP4:
      return decode_mxfp4(rows.narrow(1, 0, AS_INDEX_DIM / 2),
                          rows.narrow(1, AS_INDEX_DIM / 2, AS_INDEX_DIM / AS_MXFP4_BLOCK));
    case AS_RECORD_BF16:
      return numbers_in(rows, at::kBFloat16);
    case AS_RECORD_F16:
      return numbers_in(rows, at::kHalf);
    default:
      return numbers_in(rows, at::kFloat);
  }
}

std::string record_name(std::int32_t record) {
  switch (record) {
    case AS_RECORD_NONE:
      return "NONE";
    case AS_RECORD_LATENT:
      return "LATENT";
    case AS_RECORD_INDEX_FP8:
      return "INDEX_FP8";
    case AS_RECORD_INDEX_MXFP4:
      return "INDEX_MXFP4";
    case AS_RECORD_STATE:
      return "STATE";
    case kAnyIndexRecord:
      return "INDEX_FP8 or INDEX_MXFP4";
    case kAnyEntryRecord:
      return "LATENT, INDEX_FP8 or INDEX_MXFP4";
    case kKvRecord:
      return "bf16, f16, and fp8_, e5m2_ and int8_ rows of heads";
    case kMlaRecord:
      return "latent_656, bf16";
    default:
      const as_row_format* format = as_row_format_of(record);
      return format != nullptr ? format->name : "unknown";
  }
}

bool allowed_record(std::int32_t record, std::int32_t expected) {
  const bool index = record == AS_RECORD_INDEX_FP8 || record == AS_RECORD_INDEX_MXFP4;
  const std::int32_t kv = record & ~AS_RECORD_HND;
  if (expected == kAnyIndexRecord) return index;
  if (expected == kAnyEntryRecord) return index || record == AS_RECORD_LATENT;
  if (expected == kKvRecord) {
    return kv == AS_RECORD_BF16 || kv == AS_RECORD_F16 || kv_code_of(record).has_value();
  }
  if (expected == kMlaRecord) return record == AS_RECORD_LATENT_656 || record == AS_RECORD_BF16;
  return record == expected;
}

}  // namespace

Fp8 encode_fp8(const Tensor& x, std::int64_t block, std::int32_t scale_floor) {
  const Tensor blocks = in_blocks_of(x, block);
  const Tensor exponents = fp8_exponents(blocks, scale_floor);
  return {e4m3_codes(blocks * inverse_of(exponents)).view(x.sizes()), exponents.squeeze(-1)};
}

ScaledFp8 encode_fp8_by(std::int32_t scale_rule, const Tensor& x, std::int64_t block) {
  if (scale_rule == AS_SCALE_POWER_OF_TWO) {
    const Fp8 row = encode_fp8(x, block);
    return {row.codes, scale_of(row.exponents)};
  }
  const Tensor blocks = in_blocks_of(x, block);
  const Tensor most = blocks.abs().nan_to_num(0, std::numeric_limits<double>::infinity());
  const Tensor floored = most.amax(-1, true).clamp_min(double{1e-4F});
  const Tensor scales = round_to_fp32(floored / 448);
  return {e4m3_codes(round_to_fp32(blocks / scales)).view(x.sizes()), scales.squeeze(-1)};
}

Tensor decode_fp8(const Tensor& codes, const Tensor& scales) {
  const std::int64_t block = codes.size(-1) / scales.size(-1);
  return in_blocks_of(e4m3_values(codes), block).mul_(scales.unsqueeze(-1)).view(codes.sizes());
}

Mxfp4 encode_mxfp4(const Tensor& x, std::int32_t fp4_rule) {
  const Tensor blocks = in_blocks_of(x, AS_MXFP4_BLOCK);
  const Tensor exponents = fp4_exponents(blocks, fp4_rule);
  const Tensor codes = e2m1_codes(blocks * inverse_of(exponents), fp4_rule);
  const Tensor pairs = in_blocks_of(codes.view(x.sizes()), 2);
  return {pairs.select(-1, 0) + pairs.select(-1, 1) * 16, ue8m0_bytes(exponents.squeeze(-1))};
}

Tensor decode_mxfp4(const Tensor& packed, const Tensor& scales) {
  const Tensor codes = at::stack({packed.bitwise_and(15), packed.bitwise_right_shift(4)}, -1);
  const Tensor values = e2m1_values(codes.flatten(-2));
  return in_blocks_of(values, AS_MXFP4_BLOCK)
      .mul_(ue8m0_values(scales).unsqueeze(-1))
      .view(values.sizes());
}

CacheRows::CacheRows(const as_cache& cache, const char* name, std::int32_t record,
                     std::int64_t width, std::int64_t heads, const as_tensor* scales)
    : cache_(cache), name_(name) {
  const std::string what = name;
  if (!allowed_record(cache.record, record)) {
    throw BadInput(what + " holds records of kind " + record_name(cache.record) +
                   "; allowed: " + record_name(record));
  }
  if (cache.addressing != AS_LOGICAL) {
    throw BadInput(what + " is paged; the references read logical rows (AS_LOGICAL)");
  }
  if (as_cache_heads(&cache) != heads || cache.width != width) {
    throw BadInput(what + " has rows of width " + std::to_string(cache.width) + " in " +
                   std::to_string(as_cache_heads(&cache)) + " heads; expected " +
                   std::to_string(width) + " in " + std::to_string(heads));
  }
  if (plain()) {
    check(cache.data, name, Kind::kFloat, {kAny, width});
  } else {
    check(cache.data, name, Kind::kBytes,
          {kAny, as_row_layout_of(cache.record, width, heads, 1).row});
  }
  check_dense_rows(cache.data, name);
  if (scales != nullptr) scales_ = kv_scales(cache.record, *scales, what, heads);
}

Tensor CacheRows::encoded(const Tensor& values, const Quantiser& quantiser) const {
  const auto code = kv_code_of(cache_.record);
  if (!code) return encode(cache_.record, values, quantiser);
  return encode_kv(*code, values, as_cache_heads(&cache_), scales_);
}

Tensor CacheRows::decoded(const Tensor& rows) const {
  const auto code = kv_code_of(cache_.record);
  if (!code) return decode(cache_.record, rows);
  return decode_kv(*code, rows, as_cache_heads(&cache_), scales_);
}

Tensor CacheRows::load(const Tensor& rows) const {
  check_indices(rows, size(), name_);
  const Tensor stored = in_place(cache_.data).index_select(0, rows).to(torch_device());
  return plain() ? stored.to(at::kDouble) : decoded(stored);
}

void CacheRows::store(const Tensor& slots, const Tensor& values, const Numbers& numbers,
                      const Quantiser& quantiser) const {
  if (!slots.ge(0).any().item<bool>()) return;
  check_indices(slots.clamp_min(0), size(), name_);
  Tensor rows = values;
  if (!plain() || !numbers.exact) {
    rows = encoded(values, quantiser);
    if (plain()) rows = decoded(rows);
  }
  rows = stored_as(rows, in_place(cache_.data).scalar_type()).cpu().contiguous();
  const std::int64_t width = cache_.data.shape[1] * as_dtype_size(cache_.data.dtype);
  const auto* from = static_cast<const char*>(rows.data_ptr());
  for (std::int64_t t = 0; t < slots.numel(); ++t) {
    const std::int64_t slot = slots.data_ptr<std::int64_t>()[t];
    if (slot < 0) continue;
    std::memcpy(select(cache_.data, 0, slot).data, from + t * width,
                static_cast<std::size_t>(width));
  }
}

}  // namespace attnscope::reference
