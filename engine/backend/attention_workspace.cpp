#include "engine/backend/attention_workspace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <initializer_list>
#include <utility>

namespace attnscope {
namespace {

constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 40;
constexpr std::int64_t kGatheredRequests = 5;  // vLLM's choice: flashmla_sparse.py 60191e18

using SumFactor = std::pair<const char*, std::int64_t>;

Result<void> add_workspace(std::vector<WorkspaceSum>& sums, const char* what,
                           std::initializer_list<SumFactor> factors) {
  WorkspaceSum sum{what, {}, {}, 1};
  for (const auto& [name, n] : factors) {
    const char* times = sum.formula.empty() ? "" : " x ";
    sum.formula += fmt::format("{}{}", times, name);
    sum.numbers += fmt::format("{}{}", times, n);
    if (__builtin_mul_overflow(sum.bytes, n, &sum.bytes)) {
      return bad_input(fmt::format("{}: {} is more than 2^63 - 1 bytes", what, sum.numbers),
                       "make one of the numbers smaller");
    }
  }
  sums.push_back(std::move(sum));
  return {};
}

Result<void> check_workspace(const WorkspaceNumbers& n) {
  const std::pair<const char*, std::int64_t> all[] = {
      {"batch", n.batch},         {"max-seq", n.max_seq},       {"heads", n.heads},
      {"head-size", n.head_size}, {"value-size", n.value_size}, {"splits", n.splits},
      {"partition", n.partition}};
  for (const auto& [name, value] : all) {
    if (value < 1 || value > kMostWorkspace) {
      return bad_input(fmt::format("{} {} is out of range", name, value),
                       fmt::format("allowed: 1 to {}", kMostWorkspace));
    }
  }
  if (n.kv_heads < 0 || n.kv_heads > kMostWorkspace || n.gathered < 0 ||
      n.gathered > kMostWorkspace) {
    return bad_input(
        fmt::format("KV heads {} or gathered tokens {} are out of range", n.kv_heads, n.gathered),
        fmt::format("allowed: 0 to {}", kMostWorkspace));
  }
  if (n.kv_heads > 0 && n.heads % n.kv_heads != 0) {
    return bad_input(fmt::format("{} heads do not share {} KV heads evenly", n.heads, n.kv_heads),
                     "KV heads divide heads; 0: one row for all");
  }
  return {};
}

}  // namespace

Result<std::vector<WorkspaceSum>> workspace_sums(const WorkspaceNumbers& n) {
  if (auto ok = check_workspace(n); !ok) return ok.error();
  const std::int64_t parts = (n.max_seq + n.partition - 1) / n.partition;
  const std::int64_t gathered = n.gathered > 0 ? n.gathered : kGatheredRequests * n.max_seq;
  // Keys and values of all heads, or the row that is both.
  const bool latent = n.kv_heads == 0;
  const std::int64_t row = latent ? n.head_size : n.head_size + n.value_size;
  std::vector<WorkspaceSum> sums;
  Result<void> ok = add_workspace(sums, "CUDA graph, whole context in fp32",
                                  {{"batch", n.batch},
                                   {"tokens", n.max_seq},
                                   {"heads", n.heads},
                                   {"head size", n.head_size},
                                   {"4 bytes", 4}});
  if (ok) {
    ok = add_workspace(sums, "split-KV, outputs of splits in fp32",
                       {{"splits", n.splits},
                        {"heads", n.heads},
                        {"batch", n.batch},
                        {"value size", n.value_size},
                        {"4 bytes", 4}});
  }
  if (ok) {
    ok = add_workspace(
        sums, "split-KV, log-sum-exp of splits",
        {{"splits", n.splits}, {"heads", n.heads}, {"batch", n.batch}, {"4 bytes", 4}});
  }
  if (ok) {
    ok = add_workspace(sums, "paged attention v2, outputs of partitions in bf16",
                       {{"batch", n.batch},
                        {"heads", n.heads},
                        {"partitions", parts},
                        {"value size", n.value_size},
                        {"2 bytes", 2}});
  }
  if (ok) {
    ok = add_workspace(sums, "paged attention v2, largest logits and sums",
                       {{"batch", n.batch},
                        {"heads", n.heads},
                        {"partitions", parts},
                        {"2 numbers", 2},
                        {"4 bytes", 4}});
  }
  if (ok) {
    ok = add_workspace(sums, "gathered prefill, rows in bf16",
                       {{"tokens", gathered},
                        {"KV heads", latent ? 1 : n.kv_heads},
                        {latent ? "row" : "key and value size", row},
                        {"2 bytes", 2}});
  }
  if (!ok) return ok.error();
  return sums;
}

}  // namespace attnscope
