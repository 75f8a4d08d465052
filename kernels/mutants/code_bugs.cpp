// Wrong quantised rows of keys and values: their scales, zero points and codes.
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/kv_codes.h"
#include "kernels/mutants/bugs.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using Inserted = as_rope_kv_insert_params;
using Read = as_paged_attention_params;
using RowBytes = std::vector<unsigned char>;

float number_at(const unsigned char* bytes) {
  float value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}
void put_number(unsigned char* bytes, float value) { std::memcpy(bytes, &value, sizeof(value)); }

// Changes the rows that the call has written, in logical form.
template <class Change>
void each_written(const Inserted& p, const as_cache& cache, const Change& change) {
  if (!cpu::is_coded(cache.record)) return;
  const as_row_layout row = as_row_layout_of(cache.record, cache.width, as_cache_heads(&cache), 1);
  RowBytes bytes(static_cast<std::size_t>(row.row));
  for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
    const std::int64_t slot = *at<std::int64_t>(p.slots, t);
    if (slot < 0) continue;
    as_row_get(&cache, slot, bytes.data());
    change(row, bytes.data());
    as_row_put(&cache, slot, bytes.data());
  }
}

// Scales of heads, moved by one: those beside the cache before codes are made, those of rows where
// they are stored.
class NextHeads {
 public:
  explicit NextHeads(const as_tensor& scale) {
    for (std::int64_t h = 0; present(scale) && h < scale.shape[0]; ++h) {
      own_.push_back(*at<float>(scale, (h + 1) % scale.shape[0]));
    }
  }
  as_tensor tensor() {
    return own_.empty() ? no_tensor()
                        : make_tensor(own_.data(), {static_cast<std::int64_t>(own_.size())});
  }

 private:
  std::vector<float> own_;
};

std::int32_t cache_scale_of_next_head(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Inserted>(
      AS_OP_ROPE_KV_INSERT, params, call, error, [&](Inserted p) -> std::int32_t {
        if (as_queries_alone(&p) != 0) return AS_OK;
        NextHeads k(p.k_scale), v(p.v_scale);
        p.k_scale = k.tensor();
        p.v_scale = v.tensor();
        const std::int32_t status = run_cpu(AS_OP_ROPE_KV_INSERT, &p, call, error);
        if (status != AS_OK) return status;
        for (const as_cache* cache : {&p.k_cache, &p.v_cache}) {
          each_written(p, *cache, [](const as_row_layout& row, unsigned char* bytes) {
            const as_element_place first = as_element_at(&row, 0, 0, 0);
            if (first.scale < 0 || row.heads < 2) return;
            const auto size = static_cast<std::size_t>(row.head_scales);
            const RowBytes of_first(bytes + first.scale, bytes + first.scale + size);
            for (std::int64_t h = 0; h + 1 < row.heads; ++h) {
              std::memcpy(bytes + as_element_at(&row, 0, h, 0).scale,
                          bytes + as_element_at(&row, 0, h + 1, 0).scale, size);
            }
            std::memcpy(bytes + as_element_at(&row, 0, row.heads - 1, 0).scale, of_first.data(),
                        size);
          });
        }
        return AS_OK;
      });
}

// Codes stay, and the number that they are counted from gets the other sign.
std::int32_t cache_zero_negated(const void* params, const as_call* call, as_error* error) {
  return spoil_after<Inserted>(
      AS_OP_ROPE_KV_INSERT, params, call, error, [&](const Inserted& p) -> std::int32_t {
        if (as_queries_alone(&p) != 0) return AS_OK;
        for (const as_cache* cache : {&p.k_cache, &p.v_cache}) {
          each_written(p, *cache, [](const as_row_layout& row, unsigned char* bytes) {
            for (std::int64_t h = 0; h < row.heads; ++h) {
              const as_element_place e = as_element_at(&row, 0, h, 0);
              if (e.zero >= 0) put_number(bytes + e.zero, -number_at(bytes + e.zero));
            }
          });
        }
        return AS_OK;
      });
}

// A cache of its own with all rows of another, changed.
class ChangedRows {
 public:
  template <class Change>
  ChangedRows(const as_cache& from, const Change& change) : cache_(from) {
    const std::int64_t pages = from.data.shape[0], stride = from.data.stride[0];
    const auto* bytes = static_cast<const unsigned char*>(from.data.data);
    bytes_.assign(bytes, bytes + (pages > 0 ? (pages - 1) * stride + from.data.shape[1] : 0));
    cache_.data.data = bytes_.data();
    const as_row_layout row = as_row_layout_of(from.record, from.width, as_cache_heads(&from), 1);
    RowBytes one(static_cast<std::size_t>(row.row));
    const std::int64_t rows = from.addressing == AS_PAGED ? from.rows_per_block : 1;
    for (std::int64_t slot = 0; slot < pages * rows; ++slot) {
      as_row_get(&cache_, slot, one.data());
      change(row, one.data());
      as_row_put(&cache_, slot, one.data());
    }
  }
  const as_cache& cache() const { return cache_; }

 private:
  as_cache cache_;
  RowBytes bytes_;
};

std::int32_t read_again(const void* params, const as_call* call, as_error* error,
                        std::int32_t (*change)(Read&, const as_call*, as_error*)) {
  return spoil_after<Read>(AS_OP_PAGED_ATTENTION, params, call, error,
                           [&](Read p) -> std::int32_t { return change(p, call, error); });
}

// The record with the other format of FP8, 0 = it has no such codes.
std::int32_t other_fp8(std::int32_t record) {
  constexpr std::int32_t kBoth[][2] = {{AS_RECORD_FP8_TENSOR, AS_RECORD_E5M2_TENSOR},
                                       {AS_RECORD_FP8_HEAD, AS_RECORD_E5M2_HEAD},
                                       {AS_RECORD_FP8_TOKEN_HEAD, AS_RECORD_E5M2_TOKEN_HEAD}};
  const std::int32_t placed = record & AS_RECORD_HND, plain = record & ~AS_RECORD_HND;
  for (const auto& pair : kBoth) {
    if (plain == pair[0]) return pair[1] | placed;
    if (plain == pair[1]) return pair[0] | placed;
  }
  return 0;
}

std::int32_t fp8_read_as_other(const void* params, const as_call* call, as_error* error) {
  return read_again(params, call, error, [](Read& p, const as_call* c, as_error* e) {
    for (as_cache* cache : {&p.k_cache, &p.v_cache}) {
      if (const std::int32_t other = other_fp8(cache->record); other != 0) cache->record = other;
    }
    return run_cpu(AS_OP_PAGED_ATTENTION, &p, c, e);
  });
}

std::int32_t scale_of_keys_alone(const void* params, const as_call* call, as_error* error) {
  return read_again(params, call, error, [](Read& p, const as_call* c, as_error* e) {
    if (!cpu::is_coded(p.v_cache.record)) return static_cast<std::int32_t>(AS_OK);
    std::vector<float> ones(present(p.v_scale) ? static_cast<std::size_t>(p.v_scale.shape[0]) : 0,
                            1.0f);
    if (!ones.empty()) p.v_scale = make_tensor(ones.data(), {p.v_scale.shape[0]});
    const ChangedRows values(p.v_cache, [](const as_row_layout& row, unsigned char* bytes) {
      for (std::int64_t h = 0; h < row.heads; ++h) {
        const as_element_place at_head = as_element_at(&row, 0, h, 0);
        if (at_head.scale >= 0) put_number(bytes + at_head.scale, 1.0f);
      }
    });
    p.v_cache = values.cache();
    return run_cpu(AS_OP_PAGED_ATTENTION, &p, c, e);
  });
}

std::int32_t zero_point_ignored(const void* params, const as_call* call, as_error* error) {
  return read_again(params, call, error, [](Read& p, const as_call* c, as_error* e) {
    if (!cpu::is_coded(p.v_cache.record)) return static_cast<std::int32_t>(AS_OK);
    const ChangedRows values(p.v_cache, [](const as_row_layout& row, unsigned char* bytes) {
      for (std::int64_t h = 0; h < row.heads; ++h) {
        const as_element_place at_head = as_element_at(&row, 0, h, 0);
        if (at_head.zero >= 0) put_number(bytes + at_head.zero, 0.0f);
      }
    });
    p.v_cache = values.cache();
    return run_cpu(AS_OP_PAGED_ATTENTION, &p, c, e);
  });
}

}  // namespace

std::vector<Bug> code_bugs() {
  return {
      {"mutant:cache_scale_of_next_head",
       "Quantised keys and values have the scale of the head behind.", AS_OP_ROPE_KV_INSERT,
       cache_scale_of_next_head},
      {"mutant:cache_zero_negated", "Zero points of int8 rows are stored with the other sign.",
       AS_OP_ROPE_KV_INSERT, cache_zero_negated},
      {"mutant:fp8_read_as_other", "e4m3 codes of rows are read as e5m2, and e5m2 as e4m3.",
       AS_OP_PAGED_ATTENTION, fp8_read_as_other},
      {"mutant:scale_of_keys_alone", "Codes of values are read without their scale.",
       AS_OP_PAGED_ATTENTION, scale_of_keys_alone},
      {"mutant:zero_point_ignored", "Zero points of int8 values are left out.",
       AS_OP_PAGED_ATTENTION, zero_point_ignored},
  };
}

}  // namespace attnscope::mutants
