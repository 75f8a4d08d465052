#include "reference/helper_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/layout/records.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/lane_entries.h"
#include "kernels/params/op_table.h"
#include "reference/codec.h"
#include "reference/ops.h"
#include "reference/rope.h"
#include "reference/rows.h"
#include "reference/tensors.h"
#include "reference/torch_module.h"

namespace attnscope::reference {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kBlock = 128;  // values that share an FP8 scale

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

// The sum of both states' weights, each as a power of `base` relative to the larger one.
void merge_states(const as_merge_states_params& p) {
  const FloatRows a(p.a, "a", {kAny, kAny, kAny});
  const std::int64_t tokens = a.size(0), heads = a.size(1), dim = a.size(2);
  const FloatRows b(p.b, "b", {tokens, heads, dim}), out(p.out, "out", {tokens, heads, dim});
  const FloatRows lse_a(p.lse_a, "lse_a", {tokens, heads}),
      lse_b(p.lse_b, "lse_b", {tokens, heads});
  const FloatRows lse(p.lse, "lse", {tokens, heads});
  const double unit = p.base_2 != 0 ? std::log(2.0) : 1.0;  // of the logarithms, in nats
  std::vector<double> values(to_size(dim)), sum(to_size(dim));
  for (std::int64_t row = 0; row < tokens * heads; ++row) {
    double total = 0, largest = -kInfinity;
    double logs[2];
    lse_a.load(row / heads, row % heads, 1, &logs[0]);
    lse_b.load(row / heads, row % heads, 1, &logs[1]);
    for (double l : logs) {
      if (!std::isinf(l)) largest = std::isnan(l) ? l : std::max(largest, l);
    }
    std::fill(sum.begin(), sum.end(), 0.0);
    for (int i = 0; i < 2; ++i) {
      if (std::isinf(logs[i])) continue;
      const double weight = std::exp((logs[i] - largest) * unit);
      total += weight;
      (i == 0 ? a : b).load(row, values.data());
      for (std::size_t d = 0; d < values.size(); ++d) sum[d] += weight * values[d];
    }
    const bool empty = total == 0;
    for (double& v : sum) v = empty ? 0.0 : v / total;
    out.store(row, sum.data());
    const double merged = empty ? kInfinity : largest + std::log(total) / unit;
    lse.store(row / heads, row % heads, 1, &merged);
  }
}

void gather_rows(const as_gather_rows_params& p) {
  const CacheRows cache(p.cache, "cache",
                        p.cache.record == AS_RECORD_STATE ? AS_RECORD_STATE : kAnyEntryRecord,
                        p.cache.width);
  const Integers slots(p.slots, "slots", {kAny});
  const FloatRows out(p.out, "out", {slots.size(0), cache.width()});
  std::vector<double> row(to_size(cache.width()));
  for (std::int64_t n = 0; n < slots.size(0); ++n) {
    std::fill(row.begin(), row.end(), 0.0);
    if (slots.get(n) >= 0) cache.load(slots.get(n), n, row.data());
    out.store(n, row.data());
  }
}

void copy_blocks(const as_copy_blocks_params& p) {
  const Bytes from(p.from, "from", {kAny, kAny});
  const Bytes to(p.to, "to", {kAny, p.from.shape[1]});
  const Integers pairs(p.pairs, "pairs", {kAny, 2});
  std::vector<std::uint8_t> held(to_size(p.from.shape[1]));
  for (std::int64_t n = 0; n < pairs.size(0); ++n) {
    if (pairs.get(n, 0) < 0 || pairs.get(n, 1) < 0) continue;
    check_index(pairs.get(n, 0), p.from.shape[0], "block of from", n);
    check_index(pairs.get(n, 1), p.to.shape[0], "block of to", n);
    std::uint8_t* source = from.row(pairs.get(n, 0));
    std::uint8_t* target = to.row(pairs.get(n, 1));
    std::copy_n(target, held.size(), held.begin());
    std::copy_n(source, held.size(), target);
    if (p.exchange != 0) std::copy(held.begin(), held.end(), source);
  }
}

// As sparse_attention over a cache of plain values.
void workspace_attention(const as_workspace_attention_params& p) {
  const FloatRows rows(p.rows, "rows", {kAny, AS_HEAD_DIM});
  std::vector<double> values = rows.load_all();
  as_sparse_attention_params plain{};
  plain.head = {sizeof(plain), AS_PARAMS_VERSION};
  plain.q = p.q;
  plain.cache.data.data = values.data();
  plain.cache.data.dtype = AS_F64;
  plain.cache.data.rank = 2;
  plain.cache.data.shape[0] = rows.rows();
  plain.cache.data.shape[1] = plain.cache.data.stride[0] = AS_HEAD_DIM;
  plain.cache.data.stride[1] = 1;
  plain.cache.record = AS_RECORD_LATENT;
  plain.cache.addressing = AS_LOGICAL;
  plain.cache.width = AS_HEAD_DIM;
  plain.indices = p.indices;
  plain.topk_length = p.topk_length;
  plain.sinks = p.sinks;
  plain.o = p.o;
  plain.lse = p.lse;
  plain.scale = p.scale;
  sparse_attention(plain, Precision{false});
}

void inverse_rope_quantise(const as_inverse_rope_quantise_params& p) {
  const FloatRows o(p.o, "o", {kAny, kAny, kAny});
  const std::int64_t tokens = o.size(0), heads = o.size(1), dim = o.size(2);
  const FloatRows codes(p.codes, "codes", {tokens, heads, dim});
  const FloatRows scales(p.scales, "scales", {tokens, heads, dim / kBlock});
  const Integers positions(p.positions, "positions", {tokens});
  const Rope rope(p.rope, false);
  std::vector<double> row(to_size(dim));
  std::vector<std::uint8_t> block(to_size(kBlock));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const RopeRow rotation = rope.row(positions.get(t));
    for (std::int64_t h = 0; h < heads; ++h) {
      o.load(t * heads + h, row.data());
      rotate(row.data() + dim - AS_ROPE_DIM, rotation, true);
      for (double& v : row) v = round_to_bf16(v);
      for (std::int64_t b = 0; b < dim / kBlock; ++b) {
        const double scale =
            std::ldexp(1.0, encode_fp8(row.data() + b * kBlock, kBlock, block.data()));
        for (std::int64_t i = 0; i < kBlock; ++i) {
          row[to_size(b * kBlock + i)] = e4m3_value(block[to_size(i)]) * scale;
        }
        scales.store(t * heads + h, b, 1, &scale);
      }
      codes.store(t * heads + h, row.data());
    }
  }
}

void fp8_linear(const as_fp8_linear_params& p) {
  const Bytes x(p.x, "x", {kAny, kAny});
  const std::int64_t rows = p.x.shape[0], in = p.x.shape[1], outs = p.weight.shape[0];
  const Bytes weight(p.weight, "weight", {outs, in});
  const FloatRows x_scale(p.x_scale, "x_scale", {rows, in / kBlock});
  const FloatRows weight_scale(p.weight_scale, "weight_scale",
                               {(outs + kBlock - 1) / kBlock, in / kBlock});
  const FloatRows y(p.y, "y", {rows, outs});
  std::vector<double> left(to_size(in)), right(to_size(in)), scales(to_size(in / kBlock));
  const auto load = [&](const Bytes& codes, const FloatRows& scale, std::int64_t row,
                        std::int64_t scale_row, std::vector<double>* values) {
    scale.load(scale_row, scales.data());
    for (std::int64_t i = 0; i < in; ++i) {
      (*values)[to_size(i)] = e4m3_value(codes.row(row)[i]) * scales[to_size(i / kBlock)];
    }
  };
  for (std::int64_t o = 0; o < outs; ++o) {
    load(weight, weight_scale, o, o / kBlock, &right);
    for (std::int64_t t = 0; t < rows; ++t) {
      load(x, x_scale, t, t, &left);
      double sum = 0;
      for (std::size_t i = 0; i < left.size(); ++i) sum += left[i] * right[i];
      y.store(t, o, 1, &sum);
    }
  }
}

std::int32_t fail(as_error* error, as_status code, const char* name, const char* what) {
  if (error != nullptr) {
    error->code = code;
    const std::string text = std::string("ref.sim ") + name + ": " + what;
    const std::size_t n = std::min(text.size(), sizeof(error->message) - 1);
    std::memcpy(error->message, text.data(), n);
    error->message[n] = '\0';
  }
  return code;
}

// No exception leaves the lane.
template <as_op_id Id, class Params, void (*kOp)(const Params&)>
std::int32_t entry(const void* params, const as_call*, as_error* error) {
  const char* name = as_op_find(Id)->name;
  try {
    const auto* p = static_cast<const Params*>(params);
    if (p == nullptr || p->head.struct_size != sizeof(Params)) {
      throw BadInput("params are NULL or of another size: rebuild the caller with these headers");
    }
    kOp(*p);
    return AS_OK;
  } catch (const BadInput& e) {
    return fail(error, AS_BAD_INPUT, name, e.what());
  } catch (const NoTorch& e) {
    return fail(error, AS_NO_ENVIRONMENT, name, e.what());
  } catch (const std::bad_alloc&) {
    return fail(error, AS_NO_ENVIRONMENT, name, "out of memory; use fewer tokens");
  } catch (const std::exception& e) {
    return fail(error, AS_INTERNAL, name, e.what());
  }
}

}  // namespace

void enter_helpers(Lane* lane) {
#define AS_ENTRY(id, params, function) lane->ops[id] = entry<id, params, function>;
  AS_FOR_EACH_HELPER(AS_ENTRY)
#undef AS_ENTRY
}

}  // namespace attnscope::reference
