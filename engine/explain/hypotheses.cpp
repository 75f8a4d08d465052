#include "engine/explain/hypotheses.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string_view>

#include "kernels/params/dtype.h"

namespace attnscope {
namespace {

// Elements of a run that are not what the case holds. A bound of the whole tap can be broken by no
// element alone.
std::int64_t unlike(const CaseRun& run) {
  std::int64_t count = 0;
  for (const CaseTap& tap : run.taps) {
    if (tap.verdict != Verdict::kWrong) continue;
    count += std::max<std::int64_t>(tap.comparison.figures.beyond, 1);
  }
  return count;
}

// A table in the shape of the step's own: entries that the step before did not have are null.
StoredTensor in_shape_of(const StoredTensor& own, const StoredTensor& before) {
  StoredTensor out = own;
  out.stride.clear();
  std::fill(out.bytes.begin(), out.bytes.end(), std::uint8_t{0});
  const std::size_t rank = own.shape.size();
  std::vector<std::int64_t> at(rank, 0);
  const std::int64_t size = as_dtype_size(own.dtype);
  const auto total = to_count(out.bytes.size()) / size;
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t rest = i, from = 0, stride = 1;
    bool there = true;
    for (std::size_t a = rank; a-- > 0;) {
      const std::int64_t k = rest % own.shape[a];
      rest /= own.shape[a];
      there = there && k < before.shape[a];
      from += k * stride;
      stride *= before.shape[a];
    }
    if (!there) continue;
    std::memcpy(out.bytes.data() + i * size, before.bytes.data() + from * size, to_size(size));
  }
  return out;
}

// The right op with the tables of the step before.
Result<void> try_tables(const OpCase& observed, const CaseLane& sim, const TablesBefore& before,
                        const CaseRunOptions& options, Hypotheses& out) {
  OpCase stale = observed;
  std::string names;
  for (const auto& [name, table] : before) {
    const auto own = stale.tensors.find(name);
    if (own == stale.tensors.end() || own->second.dtype != table.dtype ||
        own->second.shape.size() != table.shape.size()) {
      continue;
    }
    StoredTensor then = in_shape_of(own->second, table);
    if (then.bytes == own->second.bytes) continue;
    own->second = std::move(then);
    names += (names.empty() ? "" : ", ") + name;
  }
  if (names.empty()) return {};
  const auto run = run_case(stale, sim, options);
  if (!run) return run.error().code == AS_INTERNAL ? Result<void>(run.error()) : Result<void>();
  ++out.tried;
  const std::int64_t other = unlike(*run);
  const double share = 1 - static_cast<double>(other) / static_cast<double>(out.wrong);
  if (share < kLeastShare) return {};
  out.likely.push_back({"the block table of the step before",
                        "The op is given it anew in each step (" + names +
                            "), and blocks are looked up in a stale one.",
                        share, other == 0});
  return {};
}

}  // namespace

bool is_block_table(const as_tap_info& tap) {
  const std::string_view name = tap.name;
  return tap.direction == AS_TAP_IN && tap.kind != AS_TAP_CACHE &&
         (name == "table" || name == "tables");
}

Result<Hypotheses> try_mistakes(const OpCase& observed, const CaseRun& right, const CaseLane& sim,
                                std::span<const Mistake> mistakes, const TablesBefore& before,
                                const CaseRunOptions& options, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  Hypotheses out;
  out.wrong = unlike(right);
  if (out.wrong == 0) return out;
  CaseRunOptions once = options;
  once.repeat = 1;
  once.sim = nullptr;  // codes that follow from a mistake's own row need not be those observed
  once.keep_references = false;
  if (auto ok = try_tables(observed, sim, before, once, out); !ok) return ok.error();
  for (const Mistake& mistake : mistakes) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (spent.count() > seconds) {
      ++out.left;
      continue;
    }
    const auto run = run_case(observed, mistake.lane, once);
    if (!run) {
      if (run.error().code == AS_INTERNAL) return run.error();
      continue;
    }
    ++out.tried;
    const std::int64_t other = unlike(*run);
    const double share = 1 - static_cast<double>(other) / static_cast<double>(out.wrong);
    if (share < kLeastShare) continue;
    out.likely.push_back({mistake.lane.name, mistake.words, share, other == 0});
  }
  std::ranges::stable_sort(out.likely, std::greater<>(), &Hypothesis::share);
  return out;
}

}  // namespace attnscope
