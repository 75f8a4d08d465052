// Kernels of ops in words: by hand, and of a session whose device is a stand-in, live and recorded.
#include "app/views/launch_view.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/reports/capture_report.h"
#include "app/views/pipeline_view.h"
#include "engine/capture/capture.h"
#include "engine/capture/capture_writer.h"
#include "engine/capture/trace_io.h"
#include "engine/session/snapshot.h"
#include "tests/unit/app/host_device.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace launch_view_test {

KernelLaunch kernel() {
  KernelLaunch k;
  k.name = "decode<128>";
  k.grid = {66, 4, 1};
  k.block = {384, 1, 1};
  k.registers = 168;
  k.static_shared = 1024;
  k.dynamic_shared = 160 << 10;
  k.at_once = 1;
  return k;
}

OpLaunches launches(std::vector<KernelLaunch> kernels) {
  OpLaunches out;
  out.major = 9;
  out.multiprocessors = 132;
  out.kernels = std::move(kernels);
  return out;
}

TEST(LaunchView, SaysGridAndWhatLimitsIt) {
  const OpLaunches of = launches({kernel()});
  const auto rows = launch_rows(of);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_DOUBLE_EQ(rows[0].waves, 2.0);
  EXPECT_EQ(launch_text(rows[0]),
            "decode<128>: 66 x 4 blocks of 384 threads, 168 registers, 161 KiB shared");
  EXPECT_EQ(launch_occupancy_text(rows[0], of),
            "1 block of 12 warps at once, 19 % of 64 warps; registers and shared memory let no "
            "more run; 2.00 waves on 132 multiprocessors");
}

TEST(LaunchView, JoinsEqualNeighboursAndSaysClustersAndSpills) {
  KernelLaunch other = kernel();
  other.cluster = {2, 1, 1};
  other.local = 40;
  other.grid = {1, 1, 1};
  const auto rows = launch_rows(launches({kernel(), kernel(), other, kernel()}));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].times, 2);
  EXPECT_EQ(launch_text(rows[0]).find("2 times decode<128>: "), 0U);
  EXPECT_EQ(launch_text(rows[1]),
            "decode<128>: 1 block of 384 threads in clusters of 2, 168 registers, 161 KiB shared, "
            "40 B local a thread");
  EXPECT_EQ(rows[2].times, 1);
  EXPECT_TRUE(
      launch_occupancy_text(rows[1], launches({})).ends_with("; on 1 of 132 multiprocessors"));
}

// The rules here and the driver may not agree: then both are said. Of a GPU that is not known here
// the driver's word stands.
TEST(LaunchView, SaysWhatTheDriverSays) {
  KernelLaunch two = kernel();
  two.at_once = 2;
  OpLaunches of = launches({two});
  EXPECT_NE(launch_occupancy_text(launch_rows(of)[0], of).find("the driver says 2 blocks at once"),
            std::string::npos);
  EXPECT_DOUBLE_EQ(launch_rows(of)[0].waves, 1.0);
  of.major = 42;
  EXPECT_EQ(launch_occupancy_text(launch_rows(of)[0], of),
            "2 blocks at once, says the driver; 1.00 wave on 132 multiprocessors");
  of.kernels[0].at_once = 0;
  EXPECT_EQ(launch_occupancy_text(launch_rows(of)[0], of), "");
  EXPECT_EQ(launch_lines(OpLaunches::not_known("it waits")),
            std::vector<std::string>{"launches not known: it waits"});
  EXPECT_TRUE(launch_lines({}).empty());
}

// Through the session, its traces, a capture, the table of `show` and the pipeline's card.
TEST(LaunchView, StandBesideOpsLiveAndInCaptures) {
  SessionOptions options;
  options.references = References::kNone;
  options.lanes = {"cuda", "wo_b=cpu"};
  options.device = std::make_shared<HostDevice>();
  const Scenario scenario = small_scenario();
  auto session = Session::create(scenario, host_device::lanes(), options);
  ASSERT_TRUE(session) << session.error().text();
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("attnscope-launches-" + std::to_string(getpid()) + ".acap"))
                               .string();
  TraceRecorder recorder{TraceOptions{}};
  (*session)->set_observer(&recorder);
  auto writer =
      CaptureWriter::create(path, CaptureOptions{}, *session_info(**session), CaptureOrigin{});
  ASSERT_TRUE(writer) << writer.error().text();
  const auto expect = [](const StepTrace& trace) {
    for (const auto& op : trace.ops) {
      const bool there =
          as_op_find(op->place.op)->phase != AS_PHASE_BEFORE && op->place.op != AS_OP_WO_B;
      ASSERT_EQ(op->launches.kernels.size(), there ? 1U : 0U) << as_op_find(op->place.op)->name;
      if (!there) continue;
      EXPECT_EQ(op->launches.kernels[0].name, "host<64>");
      EXPECT_EQ(op->launches.multiprocessors, 10);
    }
  };
  std::int64_t last = -1;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE((*session)->step());
    const auto shown = take_snapshot(**session, recorder, session_info(**session), 1);
    last = shown->steps.back()->step;
    ASSERT_NE(shown->trace(last), nullptr);
    expect(*shown->trace(last));
    ASSERT_TRUE((*writer)->add(*shown->steps.back(), shown->trace(last), nullptr));
    const PipelineState state = pipeline_state(*shown, {PipelinePart::Kind::kLayer, 2}, last);
    for (const PipelineCard& card : state.cards) {
      EXPECT_EQ(pipeline_card_text(card).find("launches 1 kernel on sm_90\nhost<64>: 20 x 2 blocks "
                                              "of 256 threads, 128 registers, 97 KiB shared\n  2 "
                                              "blocks of 8 warps at once") != std::string::npos,
                card.op != AS_OP_WO_B)
          << pipeline_card_text(card);
    }
  }
  ASSERT_TRUE((*writer)->finish());
  auto capture = Capture::open(path);
  ASSERT_TRUE(capture) << capture.error().text();
  const auto read = (*capture)->trace(last);
  ASSERT_TRUE(read && *read) << (read ? "no trace" : read.error().text());
  expect(**read);
  const auto described = describe_capture(**capture, last);
  ASSERT_TRUE(described) << described.error().text();
  const std::string table = format_capture(*described);
  EXPECT_NE(table.find("kernels of step " + std::to_string(last)), std::string::npos) << table;
  EXPECT_NE(table.find("host<64>: 20 x 2 blocks of 256 threads"), std::string::npos) << table;
  for (const nlohmann::json& op : (*described)["shown"]["ops"]) {
    if (!op.contains("launches")) continue;
    const nlohmann::json& k = op["launches"]["kernels"][0];
    EXPECT_EQ(k["grid"], nlohmann::json({20, 2, 1}));
    EXPECT_EQ(k["occupancy"]["blocks"], 2);
    EXPECT_DOUBLE_EQ(k["waves"].get<double>(), 2.0);
  }
  std::filesystem::remove_all(path);

  // Numbers that no GPU has, as a damaged file may hold them.
  StepTrace damaged = **read;
  const SessionInfo& info = *(*capture)->info();
  ASSERT_EQ(check_trace(damaged, info), "");
  for (auto& op : damaged.ops) {
    if (op->launches.kernels.empty()) continue;
    auto changed = std::make_shared<OpTrace>(*op);
    changed->launches.kernels[0].grid.y = std::int64_t{1} << 40;
    op = std::move(changed);
    break;
  }
  EXPECT_NE(check_trace(damaged, info).find("a grid that no GPU takes"), std::string::npos);
}

}  // namespace launch_view_test
}  // namespace attnscope
