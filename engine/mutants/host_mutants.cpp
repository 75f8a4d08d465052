#include "engine/mutants/host_mutants.h"

#include "engine/backend/host_ops.h"
#include "kernels/params/row_format.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Runs the host op, then spoil(params).
template <class Params, class Spoil>
std::int32_t spoil_after(as_op_fn op, const void* params, const as_call* call, as_error* error,
                         const Spoil& spoil) {
  const std::int32_t status = op(params, call, error);
  if (status == AS_OK) spoil(*static_cast<const Params*>(params));
  return status;
}

// spoil(table, blocks before, blocks now) for every table of a windowed group.
template <class Spoil>
std::int32_t with_windowed_tables(const void* params, const as_call* call, as_error* error,
                                  const Spoil& spoil) {
  return spoil_after<as_block_tables_params>(
      host_block_tables, params, call, error, [&](const as_block_tables_params& p) {
        for (std::int64_t g = 0; g < p.groups.shape[0]; ++g) {
          if (*at<std::int32_t>(p.groups, g, 1) == 0) continue;
          for (std::int64_t r = 0; r < p.counts.shape[1]; ++r) {
            spoil(at<std::int32_t>(p.tables, g, r), *at<std::int32_t>(p.counts_before, g, r),
                  *at<std::int32_t>(p.counts, g, r));
          }
        }
      });
}

std::int32_t block_freed_early(const void* params, const as_call* call, as_error* error) {
  return with_windowed_tables(params, call, error,
                              [](std::int32_t* table, std::int32_t, std::int32_t now) {
                                std::int32_t oldest = 0;
                                while (oldest < now && table[oldest] == AS_NULL_BLOCK) ++oldest;
                                if (oldest + 1 < now) table[oldest] = AS_NULL_BLOCK;
                              });
}

std::int32_t recycled_block_kept(const void* params, const as_call* call, as_error* error) {
  return with_windowed_tables(params, call, error,
                              [](std::int32_t* table, std::int32_t before, std::int32_t now) {
                                if (before > 0 && before < now) table[before] = table[before - 1];
                              });
}

std::int32_t newest_block_null(const void* params, const as_call* call, as_error* error) {
  return with_windowed_tables(params, call, error,
                              [](std::int32_t* table, std::int32_t, std::int32_t now) {
                                if (now > 0) table[now - 1] = AS_NULL_BLOCK;
                              });
}

Lane make_lane(const char* name, const char* description, as_op_id op, as_op_fn function) {
  Lane lane{};
  lane.name = name;
  lane.description = description;
  lane.ops[op] = function;
  return lane;
}

}  // namespace

const std::vector<Lane>& host_mutants() {
  static const std::vector<Lane> kLanes = {
      make_lane("mutant:block_freed_early",
                "The oldest block that a window still needs is taken out of the table.",
                AS_OP_BLOCK_TABLES, block_freed_early),
      make_lane("mutant:recycled_block_kept",
                "A new place of a table still names the block before it.", AS_OP_BLOCK_TABLES,
                recycled_block_kept),
      make_lane("mutant:newest_block_null",
                "The newest block of a windowed table is the null block.", AS_OP_BLOCK_TABLES,
                newest_block_null),
  };
  return kLanes;
}

}  // namespace attnscope
