#include "kernels/cpu/inverse_rope_check.h"

#include "kernels/layout/records.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

constexpr std::int64_t kHeadsOfGrid = 65535;  // an axis of a GPU's grid

bool codes_fit(const as_inverse_rope_params& p, std::int64_t tokens, std::int64_t heads,
               std::int64_t dim, Check& check) {
  if (dim % AS_PROJECTION_BLOCK != 0) {
    return check.fail("heads of o are %lld wide; with codes they must be multiples of %d",
                      static_cast<long long>(dim), AS_PROJECTION_BLOCK);
  }
  return check.range("scale_floor", p.scale_floor, AS_SCALE_FLOOR_1E4, AS_SCALE_FLOOR_1E10) &&
         check.tensor("codes", p.codes, AS_U8, {tokens, heads, dim}) &&
         check.tensor("scales", p.scales, AS_F32, {tokens, heads, dim / AS_PROJECTION_BLOCK});
}

}  // namespace

bool check_inverse_rope(const as_inverse_rope_params& p, Check& check) {
  const bool quantises = present(p.codes), given = p.rows_given != 0;
  if (!quantises && (given || present(p.row) || present(p.scales))) {
    return check.fail("%s belongs to codes, which are absent", given            ? "rows_given"
                                                               : present(p.row) ? "row"
                                                                                : "scales");
  }
  const as_tensor& from = given ? p.row : p.o;
  if (!check.tensor(given ? "row" : "o", from, AS_BF16, {kAny, kAny, kAny})) return false;
  const std::int64_t tokens = from.shape[0], heads = from.shape[1], dim = from.shape[2];
  if (!check.range("heads", heads, 0, kHeadsOfGrid) ||
      (quantises && !codes_fit(p, tokens, heads, dim, check))) {
    return false;
  }
  if (given) return true;
  if (!check.rope(p.rope) || !check.range("last dim of o", dim, AS_ROPE_DIM, INT32_MAX) ||
      !check.tensor("positions", p.positions, AS_I64, {tokens}) ||
      !check.optional("row", p.row, AS_BF16, {tokens, heads, dim})) {
    return false;
  }
  return quantises ? check.optional("out", p.out, AS_BF16, {tokens, heads, dim})
                   : check.tensor("out", p.out, AS_BF16, {tokens, heads, dim});
}

}  // namespace attnscope::cpu
