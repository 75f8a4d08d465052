#include <fmt/format.h>

#include <chrono>

#include "kernels/mutants/mutants.h"
#include "tests/blame/tiny_session.h"
namespace attnscope {
namespace {
TEST(Blame, Try) {
  auto session = tiny_session();
  ASSERT_TRUE(session->step());
  const LaneRegistry registry = all_lanes();
  std::vector<as_lane> lanes{*registry.find("cpu")};
  for (const as_lane& l : mutants::lanes()) lanes.push_back(l);
  for (const as_lane& lane : lanes) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::string> choice{lane.name};
    auto ok = session->change_lanes(registry, choice, kStepUnderTest);
    ASSERT_TRUE(ok) << ok.error().text();
    std::string text;
    std::vector<TapResult> results;
    for (int i = 0; i < 2; ++i) {
      if (auto stepped = session->step(); !stepped) {
        text += "\n      ERROR " + stepped.error().text();
        for (const auto& r : session->current_results()) results.push_back(r);
        break;
      }
      for (const auto& r : session->history().back().results) results.push_back(r);
    }
    std::map<std::string, int> wrong;
    for (const TapResult& r : results) {
      if (r.verdict != Verdict::kWrong) continue;
      const std::string key = fmt::format("{}.{}", as_op_find(r.op)->name, r.tap);
      if (wrong[key]++ == 0)
        text += fmt::format("\n      step {} layer {} {} {}: {}", r.step, r.layer, key,
                            r.budget_used, r.note);
    }
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    int op = -1;
    for (int i = 0; i < AS_OP_COUNT; ++i)
      if (lane.ops[i]) op = i;
    fmt::print("{} [{}] {:.0f} ms{}\n", lane.name, as_op_find(op)->name, ms, text);
  }
}
}  // namespace
}  // namespace attnscope
