#include "engine/backend/host_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/params/row_format.h"
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
  const auto* host = static_cast<const StepHost*>(call->host);
  if (host == nullptr) return fail(err, AS_INTERNAL, "schedule: no scheduler behind the call");
  const ServingStep& step = host->serving->step();
  std::copy(step.num_computed.begin(), step.num_computed.end(), at<std::int32_t>(p.num_computed));
  std::copy(step.num_scheduled_tokens.begin(), step.num_scheduled_tokens.end(),
            at<std::int32_t>(p.num_scheduled_tokens));
  return AS_OK;
}

std::int32_t host_block_tables(const void* params, const as_call* call, as_error* err) {
  const auto& p = *static_cast<const as_block_tables_params*>(params);
  if (call->host == nullptr) return fail(err, AS_INTERNAL, "block_tables: no host of the call");
  const std::int64_t groups = p.groups.shape[0];
  const std::int64_t rows = p.num_scheduled_tokens.shape[0];
  const std::int64_t columns = p.tables.shape[2];
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int32_t block_size = *at<std::int32_t>(p.groups, g, 0);
    const std::int64_t most = as_first_with_rows(*at<std::int32_t>(p.groups, g, 1));
    for (std::int64_t r = 0; r < rows; ++r) {
      std::int32_t count =
          *at<std::int32_t>(p.joins, r) != 0 ? 0 : *at<std::int32_t>(p.counts_before, g, r);
      std::int32_t* out = at<std::int32_t>(p.tables, g, r);
      std::copy_n(at<std::int32_t>(p.tables_before, g, r), count, out);
      const std::int32_t n = *at<std::int32_t>(p.num_scheduled_tokens, r);
      if (n > 0) {
        std::int32_t total = *at<std::int32_t>(p.num_computed, r) + n;
        if (most >= 0 && total > most) total = static_cast<std::int32_t>(most);
        const std::int32_t held = (total + block_size - 1) / block_size;
        if (held > columns) {
          return fail(err, AS_INTERNAL,
                      fmt::format("block_tables: row {} has {} entries in group {}, its table {}",
                                  r, held, g, columns)
                          .c_str());
        }
        for (; count < held; ++count) out[count] = *at<std::int32_t>(p.blocks, g, r, count);
      }
      std::fill(out + count, out + columns, AS_NULL_BLOCK);
      *at<std::int32_t>(p.counts, g, r) = count;
    }
  }
  return AS_OK;
}

}  // namespace attnscope
