// First tokens in 16 bits beside rows of codes, wrongly told apart, written or read.
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using WideRead = as_paged_attention_params;
using WideWritten = as_rope_kv_insert_params;

template <class Change>
std::int32_t read_wide(const void* params, const as_call* call, as_error* error,
                       const Change& change) {
  return spoil_after<WideRead>(AS_OP_PAGED_ATTENTION, params, call, error,
                               [&](WideRead p) -> std::int32_t {
                                 if (p.wide_tokens == 0) return AS_OK;
                                 return change(p);
                               });
}

// A cache of its own with all bytes of another.
class CacheCopy {
 public:
  explicit CacheCopy(const as_cache& from) : cache_(from) {
    const std::int64_t pages = from.data.shape[0], stride = from.data.stride[0];
    const auto* bytes = static_cast<const unsigned char*>(from.data.data);
    bytes_.assign(bytes, bytes + (pages > 0 ? (pages - 1) * stride + from.data.shape[1] : 0));
    cache_.data.data = bytes_.data();
  }
  const as_cache& cache() const { return cache_; }

 private:
  as_cache cache_;
  std::vector<unsigned char> bytes_;
};

std::int32_t wide_border_shifted(const void* params, const as_call* call, as_error* error) {
  return read_wide(params, call, error, [&](WideRead& p) {
    const CacheCopy k(p.k_cache), v(p.v_cache);
    const std::int64_t border = p.wide_tokens;
    const bool paged = p.k_cache.addressing == AS_PAGED;
    for (std::int64_t r = 0; r < p.table.shape[0]; ++r) {
      if (*at<std::int32_t>(p.seq_lens, r) <= border) continue;
      const auto slot = [&](std::int64_t row) {
        const std::int64_t rows = p.k_cache.rows_per_block;
        if (!paged) return *at<std::int32_t>(p.table, r) + row;
        return *at<std::int32_t>(p.table, r, row / rows) * rows + row % rows;
      };
      if (slot(border - 1) < 0 || slot(border) < 0) continue;
      as_row_copy(&p.k_cache, slot(border - 1), &k.cache(), slot(border));
      as_row_copy(&p.v_cache, slot(border - 1), &v.cache(), slot(border));
    }
    p.k_cache = k.cache();
    p.v_cache = v.cache();
    return run_cpu(AS_OP_PAGED_ATTENTION, &p, call, error);
  });
}

std::int32_t wide_read_as_codes(const void* params, const as_call* call, as_error* error) {
  return read_wide(params, call, error, [&](WideRead& p) {
    p.wide_tokens = 0;
    return run_cpu(AS_OP_PAGED_ATTENTION, &p, call, error);
  });
}

// Of scales beside the cache.
std::int32_t wide_scaled(const void* params, const as_call* call, as_error* error) {
  return read_wide(params, call, error, [&](WideRead& p) -> std::int32_t {
    if (!present(p.v_scale) || (p.v_wide.record & ~AS_RECORD_HND) != AS_RECORD_BF16) return AS_OK;
    const CacheCopy values(p.v_wide);
    const std::int64_t heads = as_cache_heads(&p.v_wide), size = p.v_wide.width / heads;
    std::vector<std::uint16_t> row(static_cast<std::size_t>(p.v_wide.width));
    const std::int64_t rows =
        p.v_wide.data.shape[0] * (p.v_wide.addressing == AS_PAGED ? p.v_wide.rows_per_block : 1);
    for (std::int64_t slot = 0; slot < rows; ++slot) {
      as_row_get(&p.v_wide, slot, row.data());
      for (std::int64_t i = 0; i < p.v_wide.width; ++i) {
        const float scale = *at<float>(p.v_scale, p.v_scale.shape[0] > 1 ? i / size : 0);
        std::uint16_t& number = row[static_cast<std::size_t>(i)];
        number = cpu::float_to_bf16(cpu::bf16_to_float(number) * scale);
      }
      as_row_put(&values.cache(), slot, row.data());
    }
    p.v_wide = values.cache();
    return run_cpu(AS_OP_PAGED_ATTENTION, &p, call, error);
  });
}

std::int32_t wide_from_codes(const void* params, const as_call* call, as_error* error) {
  return spoil_after<WideWritten>(
      AS_OP_ROPE_KV_INSERT, params, call, error, [&](const WideWritten& p) -> std::int32_t {
        if (!present(p.wide_slots)) return AS_OK;
        const auto spoil = [&](const as_cache& codes, const as_tensor& scale,
                               const as_cache& wide) {
          if (!cpu::is_coded(codes.record)) return;
          std::vector<unsigned char> bytes(static_cast<std::size_t>(as_cache_row_bytes(&codes)));
          std::vector<float> read(static_cast<std::size_t>(codes.width));
          std::vector<std::uint16_t> row(read.size());
          for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
            const std::int64_t from = *at<std::int64_t>(p.slots, t);
            const std::int64_t to = *at<std::int64_t>(p.wide_slots, t);
            if (from < 0 || to < 0) continue;
            as_row_get(&codes, from, bytes.data());
            cpu::decode_kv_row(codes, scale, bytes.data(), read.data());
            for (std::size_t i = 0; i < row.size(); ++i) row[i] = cpu::float_to_bf16(read[i]);
            as_row_put(&wide, to, row.data());
          }
        };
        spoil(p.k_cache, p.k_scale, p.k_wide);
        spoil(p.v_cache, p.v_scale, p.v_wide);
        return AS_OK;
      });
}

}  // namespace

std::vector<RareBug> wide_bugs() {
  constexpr const char* kScenario = "tiny-llama-first16";
  return {
      {{"mutant:wide_border_shifted",
        "The first row behind those in 16 bits is taken from one place before.",
        AS_OP_PAGED_ATTENTION, wide_border_shifted},
       kScenario},
      {{"mutant:wide_read_as_codes", "First tokens are read from their rows of codes.",
        AS_OP_PAGED_ATTENTION, wide_read_as_codes},
       kScenario},
      {{"mutant:wide_scaled",
        "Values of first tokens in 16 bits are multiplied by the codes' scale.",
        AS_OP_PAGED_ATTENTION, wide_scaled},
       kScenario},
      {{"mutant:wide_from_codes", "Rows of 16 bits are written from what the codes are read as.",
        AS_OP_ROPE_KV_INSERT, wide_from_codes},
       kScenario},
  };
}

}  // namespace attnscope::mutants
