// slot_mapping: the slot each new row goes to, per cache group and per compressed cache.
#include "kernels/cpu/ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

// One request-by-column table out of [G,R,C].
as_tensor group_table(const as_tensor& tables, std::int64_t group) {
  as_tensor table = tables;
  table.rank = 2;
  table.data = at<std::int32_t>(tables, group);
  for (int i = 0; i < 2; ++i) {
    table.shape[i] = tables.shape[i + 1];
    table.stride[i] = tables.stride[i + 1];
  }
  return table;
}

// Slots of rows counted in units of `ratio` tokens: out[t] = slot of row p / ratio for tokens that
// end such a unit, else -1. Behind `most` tokens of a request there are no rows; negative = all.
bool map_slots(const as_slot_mapping_params& p, const as_tensor& table, std::int64_t rows,
               std::int64_t ratio, std::int64_t most, std::int64_t* out, Check& check) {
  for (std::int64_t t = 0; t < p.positions.shape[0]; ++t) {
    out[t] = -1;
    const std::int32_t request = *at<std::int32_t>(p.token_to_req, t);
    if (request < 0) continue;
    const std::int64_t position = *at<std::int64_t>(p.positions, t);
    if (position < 0) {
      return check.fail("positions[%lld] is %lld; positions start at 0", static_cast<long long>(t),
                        static_cast<long long>(position));
    }
    if ((position + 1) % ratio != 0 || (most >= 0 && position >= most)) continue;
    const std::int64_t row = position / ratio;
    if (!check.block("tables", table, t, request, row / rows)) return false;
    out[t] = *at<std::int32_t>(table, request, row / rows) * rows + row % rows;
  }
  return true;
}

bool map_compressed(const as_slot_mapping_params& p, std::int64_t ratio, const as_tensor& out,
                    const char* name, Check& check) {
  if (!present(out) || out.shape[0] == 0) return true;
  const std::int64_t groups = p.groups.shape[0];
  if (p.mla_group < 0 || p.mla_group >= groups) {
    return check.fail("mla_group is %d but %s is asked for; allowed: 0 to %lld", p.mla_group, name,
                      static_cast<long long>(groups - 1));
  }
  const std::int64_t block_size = *at<std::int32_t>(p.groups, p.mla_group);
  if (block_size % ratio != 0) {
    return check.fail("the full group has %lld tokens per block; %s needs a multiple of %lld",
                      static_cast<long long>(block_size), name, static_cast<long long>(ratio));
  }
  return map_slots(p, group_table(p.tables, p.mla_group), block_size / ratio, ratio, -1,
                   at<std::int64_t>(out), check);
}

}  // namespace

void slot_mapping(const as_slot_mapping_params& p, const as_call*, Check& check) {
  if (!check.tensor("groups", p.groups, AS_I32, {kAny, 2})) return;
  const std::int64_t groups = p.groups.shape[0];
  if (!check.tensor("tables", p.tables, AS_I32, {groups, kAny, kAny}) ||
      !check.tensor("positions", p.positions, AS_I64, {kAny})) {
    return;
  }
  const std::int64_t tokens = p.positions.shape[0];
  if (!check.tensor("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check.tensor("slots", p.slots, AS_I64, {groups, tokens}) ||
      !check.optional("c4_slots", p.c4_slots, AS_I64, {tokens}) ||
      !check.optional("c128_slots", p.c128_slots, AS_I64, {tokens}) ||
      !check.optional("c4_lens", p.c4_lens, AS_I32, {tokens}) ||
      !check.optional("seen_lens", p.seen_lens, AS_I32, {tokens}) ||
      !check.requests(p.token_to_req, p.tables.shape[1])) {
    return;
  }
  if (tokens == 0) return;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t block_size = *at<std::int32_t>(p.groups, g);
    if (!check.range("block_size", block_size, 1, INT32_MAX) ||
        !map_slots(p, group_table(p.tables, g), block_size, 1,
                   as_first_with_rows(*at<std::int32_t>(p.groups, g, 1)),
                   at<std::int64_t>(p.slots, g), check)) {
      return;
    }
  }
  if (!map_compressed(p, 4, p.c4_slots, "c4_slots", check) ||
      !map_compressed(p, 128, p.c128_slots, "c128_slots", check)) {
    return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool padding = *at<std::int32_t>(p.token_to_req, t) < 0;
    const std::int64_t seen = padding ? 0 : *at<std::int64_t>(p.positions, t) + 1;
    if (present(p.c4_lens)) *at<std::int32_t>(p.c4_lens, t) = static_cast<std::int32_t>(seen / 4);
    if (present(p.seen_lens)) *at<std::int32_t>(p.seen_lens, t) = static_cast<std::int32_t>(seen);
  }
}

}  // namespace attnscope::cpu
