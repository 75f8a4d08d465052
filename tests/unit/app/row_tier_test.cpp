// Where blocks' rows lie, as the pool map, block tables and a block's life say it: on the device
// while a request prefills, in host memory while it decodes.
#include "app/views/row_tier.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "app/views/pool_view.h"
#include "engine/session/trace_recorder.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace row_tier_test {

Scenario pools(double ratio) {
  Scenario s = small_scenario(120, 6);
  s.model = *preset("tiny-v3.2", {});
  s.model.index_topk = 16;
  s.model.host_rows = ratio > 0;
  s.ess.ratio = ratio;
  return s;
}

TEST(RowTier, BlocksOfRequestsThatDecodeLieOnTheHost) {
  auto session = small_session(References::kNone, pools(0.6));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  const auto info = session_info(*session);
  std::int64_t host = 0, device = 0;
  while (!session->finished()) {
    const std::int64_t at = session->cursor().step;
    ASSERT_TRUE(session->step());
    const auto step = recorder.trace(at);
    ASSERT_NE(step, nullptr);
    const PoolView view = pool_view(*info, *step);
    ASSERT_EQ(view.on_host.size(), step->owners.size());
    std::int64_t on_host = 0;
    for (std::size_t id = 1; id < step->owners.size(); ++id) {
      const BlockOwner& owner = step->owners[id];
      if (owner.request < 0) {
        EXPECT_FALSE(view.on_host[id]);
        continue;
      }
      const std::string tier = row_tier(*info, *step, owner.request, owner.group);
      EXPECT_EQ(view.on_host[id], tier == "host");
      const std::string text = describe_block(*info, *step, static_cast<std::int32_t>(id));
      EXPECT_EQ(text.find("lie in host memory") != std::string::npos, tier == "host") << text;
      EXPECT_EQ(text.find("lie on the device") != std::string::npos, tier == "device") << text;
      on_host += tier == "host" ? 1 : 0;
      device += tier == "device" ? 1 : 0;
    }
    host += on_host;
    EXPECT_EQ(view.sentence.find("lie in host memory") != std::string::npos, on_host > 0);
  }
  EXPECT_GT(host, 0);
  EXPECT_GT(device, 0);
}

TEST(RowTier, WithoutPoolsNothingIsSaid) {
  auto session = small_session(References::kNone, pools(0));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 2);
  const auto info = session_info(*session);
  const PoolView view = pool_view(*info, *recorder.trace(1));
  EXPECT_TRUE(view.on_host.empty());
  EXPECT_EQ(view.sentence.find("host"), std::string::npos) << view.sentence;
}

}  // namespace row_tier_test
}  // namespace attnscope
