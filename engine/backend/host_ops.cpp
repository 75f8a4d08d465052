#include "engine/backend/host_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/layout/records.h"
#include "kernels/params/step_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

std::int32_t fail(as_error* err, as_status code, const char* message) {
  if (err != nullptr) {
    err->code = code;
    auto end = fmt::format_to_n(err->message, sizeof(err->message) - 1, "{}", message);
    *end.out = '\0';
  }
  return code;
}

std::int32_t host_schedule(const void* params, const as_call* call, as_error* err) {
  const auto& p = *static_cast<const as_schedule_params*>(params);
  auto* host = static_cast<StepHost*>(call->host);
  if (host == nullptr) return fail(err, AS_INTERNAL, "schedule: no scheduler behind the call");
  std::vector<std::int32_t> scheduled = host->scheduler->schedule();
  for (std::size_t r = 0; r < scheduled.size(); ++r) {
    const Request& request = host->scheduler->request((*host->live)[r]);
    const auto row = static_cast<std::int64_t>(r);
    *at<std::int32_t>(p.demand, row) = static_cast<std::int32_t>(host->scheduler->demand(request));
    *at<std::int32_t>(p.scheduled, row) = scheduled[r];
  }
  return AS_OK;
}

std::int32_t host_block_tables(const void* params, const as_call* call, as_error* err) {
  const auto& p = *static_cast<const as_block_tables_params*>(params);
  auto* host = static_cast<StepHost*>(call->host);
  if (host == nullptr) return fail(err, AS_INTERNAL, "block_tables: no manager behind the call");
  const std::int64_t groups = p.groups.shape[0];
  const std::int64_t columns = p.tables.shape[2];
  for (std::size_t r = 0; r < host->live->size(); ++r) {
    const auto row = static_cast<std::int64_t>(r);
    const std::int32_t id = (*host->live)[r];
    const std::int32_t n = *at<std::int32_t>(p.scheduled, row);
    if (n == 0) continue;
    const std::int64_t computed = *at<std::int32_t>(p.num_computed, row);
    if (!host->blocks->allocate(id, computed, computed + n)) {
      return fail(err, AS_INTERNAL,
                  fmt::format("block_tables: request {} needs blocks for {} tokens and only {} are "
                              "free, although its demand was reserved",
                              id, computed + n, host->blocks->num_free())
                      .c_str());
    }
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::size_t r = 0; r < host->live->size(); ++r) {
      const auto row = static_cast<std::int64_t>(r);
      auto table = host->blocks->table((*host->live)[r], static_cast<int>(g));
      auto* out = at<std::int32_t>(p.tables, g, row);
      std::fill_n(out, columns, AS_NULL_BLOCK);
      std::copy_n(table.begin(),
                  std::min<std::int64_t>(columns, static_cast<std::int64_t>(table.size())), out);
      *at<std::int32_t>(p.counts, g, row) = static_cast<std::int32_t>(table.size());
    }
  }
  std::vector<std::int32_t> free = host->blocks->free_list();
  host->free_count = static_cast<std::int64_t>(free.size());
  std::copy(free.begin(), free.end(), at<std::int32_t>(p.free_after));
  return AS_OK;
}

}  // namespace attnscope
