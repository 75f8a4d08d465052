// The table of cache accesses against what the CPU lane does: every call of the default scenario
// that has a cache, once more over caches that hold NaN but in the rows that the table names.
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend/call_op.h"
#include "engine/model/numbers.h"
#include "engine/opcase/nan_memory.h"
#include "kernels/layout/records.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"
#include "tests/golden/scenario_run.h"
#include "tests/unit/family_ops.h"

namespace attnscope {
namespace cache_access_test {

constexpr std::int64_t kNobody = -1;
constexpr int kLeftOutEvery = 7;  // calls

struct Cache {
  as_cache view;
  NanMemory memory;
  std::vector<std::int64_t> named;  // slots, each once
};

bool row_is(const as_cache& a, const as_cache& b, std::int64_t slot) {
  const as_row_address x = as_cache_row(&a, slot), y = as_cache_row(&b, slot);
  return std::memcmp(x.payload, y.payload, to_size(as_payload_bytes(a.record, a.width))) == 0 &&
         (x.scales == nullptr ||
          std::memcmp(x.scales, y.scales, to_size(as_scale_bytes(a.record))) == 0);
}

void copy_row(const as_cache& from, const as_cache& to, std::int64_t slot) {
  const as_row_address x = as_cache_row(&from, slot), y = as_cache_row(&to, slot);
  std::memcpy(y.payload, x.payload, to_size(as_payload_bytes(from.record, from.width)));
  if (x.scales != nullptr) std::memcpy(y.scales, x.scales, to_size(as_scale_bytes(from.record)));
}

// A cache of the same pages, all bytes 0xff, NaN in every record.
Cache empty_like(const OpParams& params, const as_cache_access& access) {
  Cache out;
  out.view = params.cache(access.cache);
  const std::int64_t page = as_page_bytes(out.view.record, out.view.width, out.view.rows_per_block);
  out.memory = nan_memory(out.view.data.shape[0] * page);
  out.view.data = make_tensor(out.memory.get(), AS_U8, {out.view.data.shape[0], page});
  std::vector<bool> seen(to_size(out.view.data.shape[0] * out.view.rows_per_block));
  RowAccess::for_each(params.data(), access, [&](const RowVisit& v) {
    ASSERT_GE(v.slot, 0);
    ASSERT_LT(v.slot, to_count(seen.size()));
    if (!seen[to_size(v.slot)]) out.named.push_back(v.slot);
    seen[to_size(v.slot)] = true;
  });
  return out;
}

class Again : public SessionObserver {
 public:
  void op_done(const Session& session) override {
    const OpParams& params = session.last_called();
    if (RowAccess::of(params.op()).empty()) return;
    const std::string name = params.info().name;
    ++calls[name];
    EXPECT_EQ(again(session, kNobody), "") << name;
    if (calls[name] % kLeftOutEvery == 1) leave_out(session);
  }
  void step_done(const Session&) override {}
  void went_back(const Session&) override {}

  std::map<std::string, std::int64_t> calls, read, written, left_out;

 private:
  // Every row that a table names is read: without one, the op gives something else.
  void leave_out(const Session& session) {
    const OpParams& params = session.last_called();
    std::int64_t at = 0;
    for (const as_cache_access& access : RowAccess::of(params.op())) {
      if (access.direction != AS_TAP_IN) continue;
      const auto named = to_count(empty_like(params, access).named.size());
      if (named == 0) continue;
      for (const std::int64_t row : {at, at + named / 2, at + named - 1}) {
        EXPECT_NE(again(session, row), "") << params.info().name << ": row " << row - at;
      }
      at += named;
      ++left_out[params.info().name];
    }
  }

  // What is other than in the session, nothing = all is equal. skipped: number of a named row, in
  // the order of the accesses that read, that stays NaN.
  std::string again(const Session& session, std::int64_t skipped) {
    const OpParams& called = session.last_called();
    const as_op_info& info = called.info();
    OpParams params = called;
    std::map<std::size_t, Cache> caches;  // by offset
    std::int64_t n = 0;
    for (const as_cache_access& access : RowAccess::of(called.op())) {
      const as_cache& own = called.cache(access.cache);
      if (own.record == AS_RECORD_NONE) continue;
      Cache& cache = caches[access.cache] = empty_like(called, access);
      params.cache(access.cache) = cache.view;
      (access.direction == AS_TAP_IN ? read : written)[info.name] += to_count(cache.named.size());
      if (access.direction == AS_TAP_OUT) continue;
      for (const std::int64_t slot : cache.named) {
        if (n++ != skipped) copy_row(own, cache.view, slot);
      }
    }
    std::vector<std::vector<std::uint8_t>> outputs(info.num_taps);
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_TENSOR) continue;
      as_tensor& out = params.tensor(tap.offset);
      if (!present(out)) continue;
      // What the op leaves as it is stays equal.
      const auto* bytes = static_cast<const std::uint8_t*>(out.data);
      outputs[i].assign(bytes, bytes + tensor_bytes(out));
      out.data = outputs[i].data();
    }
    const auto ran = call_op(session.lanes().function(called.op()), params.data(),
                             host_call(session.parts().threads));
    if (!ran) return ran.error().text();
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      if (outputs[i].empty()) continue;
      if (std::memcmp(outputs[i].data(), called.tensor(info.taps[i].offset).data,
                      outputs[i].size()) != 0) {
        return info.taps[i].name;
      }
    }
    for (const as_cache_access& access : RowAccess::of(called.op())) {
      if (access.direction != AS_TAP_OUT) continue;
      const Cache& cache = caches.at(access.cache);
      const as_cache& own = called.cache(access.cache);
      for (const std::int64_t slot : cache.named) {
        if (!row_is(cache.view, own, slot)) return "a row written";
        const as_row_address row = as_cache_row(&cache.view, slot);
        std::memset(row.payload, 0xff, to_size(as_payload_bytes(own.record, own.width)));
        if (row.scales != nullptr)
          std::memset(row.scales, 0xff, to_size(as_scale_bytes(own.record)));
      }
      const auto* bytes = static_cast<const std::uint8_t*>(cache.view.data.data);
      const std::size_t count = to_size(as_tensor_numel(&cache.view.data));
      if (bytes[0] != 0xff || std::memcmp(bytes, bytes + 1, count - 1) != 0) {
        return "a row that the table does not name";
      }
    }
    return "";
  }
};

TEST(CacheAccess, TheTableNamesTheRowsThatTheDefaultScenarioReadsAndWrites) {
  const auto scenario = load_scenario("default");
  ASSERT_TRUE(scenario) << scenario.error().text();
  SessionOptions options;
  options.references = References::kNone;
  auto session = Session::create(*scenario, all_lanes(), options);
  ASSERT_TRUE(session) << session.error().text();
  Again again;
  (*session)->set_observer(&again);
  while (!(*session)->finished() && !::testing::Test::HasFailure()) ASSERT_TRUE((*session)->step());
  for (std::int32_t op = 0; op < AS_OP_COUNT; ++op) {
    if (!is_of_deepseek_v4(op)) continue;
    const std::string name = as_op_find(op)->name;
    for (const as_cache_access& access : RowAccess::of(op)) {
      const bool reads = access.direction == AS_TAP_IN;
      EXPECT_GT((reads ? again.read : again.written)[name], 0) << name;
      if (!reads) continue;
      EXPECT_GT(again.left_out[name], 3) << name;
    }
  }
}

}  // namespace cache_access_test
}  // namespace attnscope
