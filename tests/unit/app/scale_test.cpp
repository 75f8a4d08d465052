// attnscope bench scale: fits, inputs, what is printed and drawn. No time is judged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "app/reports/scale_inputs.h"
#include "app/reports/scale_report.h"
#include "app/reports/storage_report.h"
#include "engine/family/models.h"
#include "kernels/cpu/codec.h"
#include "kernels/cuda/device.h"
#include "kernels/layout/records.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/host_device.h"

namespace attnscope {
namespace scale_test {

using nlohmann::json;

TEST(ScaleFit, FindsAnExactLine) {
  const std::vector<double> x = {32, 64, 128, 256, 512};
  std::vector<double> y;
  for (const double v : x) y.push_back(7.5 + 0.25 * v);
  const LinearFit fit = fit_line(x, y);
  EXPECT_NEAR(fit.slope, 0.25, 1e-12);
  EXPECT_NEAR(fit.intercept, 7.5, 1e-9);
  EXPECT_NEAR(*fit.r2, 1, 1e-12);
  EXPECT_TRUE(fit.meaningful());
  EXPECT_NEAR(fit.spread, (7.5 + 128) / (7.5 + 8), 1e-12);
}

TEST(ScaleFit, TellsNoiseFromALine) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};
  EXPECT_FALSE(fit_line(x, std::vector<double>(6, 3.0)).meaningful());
  EXPECT_FALSE(fit_line(x, std::vector<double>(6, 3.0)).r2.has_value());
  const std::vector<double> noise = {3.1, 2.9, 3.1, 2.9, 3.1, 2.9};
  const LinearFit fit = fit_line(x, noise);
  EXPECT_FALSE(fit.meaningful());
  EXPECT_NEAR(fit.spread, 3.1 / 2.9, 1e-12);
  // Two points always lie on a line.
  const LinearFit two = fit_line(std::vector<double>{1, 2}, std::vector<double>{3, 5});
  EXPECT_NEAR(two.slope, 2, 1e-12);
  EXPECT_FALSE(two.meaningful());
}

// By hand: squares about the mean are 2, 2 of slope 1 and 1.5 of what is left.
TEST(ScaleFit, HasTheStandardErrorOfTheSlope) {
  const LinearFit fit = fit_line(std::vector<double>{1, 2, 3}, std::vector<double>{1, 3.5, 3});
  EXPECT_NEAR(fit.slope, 1, 1e-12);
  EXPECT_NEAR(*fit.slope_error, std::sqrt(1.5 / 2), 1e-12);
  EXPECT_NEAR(*fit.r2, 1 - 1.5 / 3.5, 1e-12);
}

// On a device whose rounds all take 7 us.
class Scale : public testing::Test {
 protected:
  static ScaleResult measured(const std::vector<std::int64_t>& contexts,
                              std::int64_t memory = std::int64_t{1} << 30) {
    auto device = std::make_shared<HostDevice>();
    const LaneRegistry lanes = host_device::lanes();
    ScaleResult out;
    {
      const auto timer = device_timer(device, 1 << 12);
      out.how.model = "v4-flash";
      out.how.lane = "cuda";
      out.how.gpu = "A <GPU> & more";
      out.how.driver = "1.2";
      out.how.cuda = "3.4";
      out.how.rounds = timer->rounds();
      const auto ok =
          measure_ops(*preset("v4-flash"), *lanes.find("cuda"), *timer, {contexts, 1, memory}, out);
      EXPECT_TRUE(ok) << ok.error().text();
    }
    EXPECT_EQ(device->counts.held, 0);
    return out;
  }
  // Once: it computes.
  static const ScaleResult& small() {
    static const ScaleResult result = measured({4096, 8192});
    return result;
  }
};

TEST_F(Scale, ReadsWhatADecodeTokenReads) {
  ASSERT_EQ(small().lines.size(), 4u);
  const auto rows = [](std::size_t line) {
    std::vector<std::int64_t> x;
    for (const ScalePoint& p : small().lines[line].points) {
      x.push_back(p.x);
      EXPECT_DOUBLE_EQ(p.us, 7.0 / p.calls);
      EXPECT_EQ(p.calls, 8);
    }
    return x;
  };
  EXPECT_EQ(rows(0), (std::vector<std::int64_t>{640, 640}));
  EXPECT_EQ(rows(1), (std::vector<std::int64_t>{160, 192}));
  EXPECT_EQ(rows(2), (std::vector<std::int64_t>{1024, 2048}));
  EXPECT_EQ(rows(3), (std::vector<std::int64_t>{1024, 2048}));
  for (const ScaleLine& line : small().lines) {
    ASSERT_TRUE(line.fit) << line.name;
    EXPECT_EQ(line.fit->slope, 0);
    EXPECT_EQ(line.fit->spread, 1);
  }
}

TEST_F(Scale, LeavesOutWhatMemoryDoesNotHold) {
  // The selection needs 2 x 8 KiB of logits a context, the rest far more.
  const ScaleResult r = measured({4096, 8192}, 60 << 10);
  EXPECT_EQ(r.left_out.size(), 6u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(r.lines[i].points.empty());
  ASSERT_EQ(r.lines[3].points.size(), 2u);
  EXPECT_EQ(r.lines[3].points[0].calls, 8);
  EXPECT_LT(r.lines[3].points[1].calls, 8);
  EXPECT_NE(r.left_out[0].find("sparse_attention at 4096 tokens: its inputs take"),
            std::string::npos)
      << r.left_out[0];
  EXPECT_NE(scale_text(r).find("left out: sparse_attention at 4096"), std::string::npos);
}

TEST_F(Scale, JsonHasAllRowsWithUnits) {
  ScaleResult r = small();
  r.memory = *measure_memory(*preset("v4-flash"), {4096, 8192});
  r.blocks = measure_blocks(4096);
  const json j = json::parse(scale_json(r).dump());
  EXPECT_EQ(j.at("format"), "attnscope-scale");
  EXPECT_EQ(j.at("how").at("gpu"), "A <GPU> & more");
  ASSERT_EQ(j.at("ops").size(), 4u);
  const std::vector<std::string> units = {"ns/1K tokens", "ns/row", "ns/key", "ns/logit"};
  for (std::size_t i = 0; i < 4; ++i) {
    const json& op = j.at("ops")[i];
    EXPECT_EQ(op.at("points").size(), 2u);
    EXPECT_EQ(op.at("points")[1].at("context"), 8192);
    EXPECT_EQ(op.at("fit").at("slope_unit"), units[i]);
    EXPECT_EQ(op.at("expected"), i == 0 ? "flat" : "linear");
  }
  EXPECT_EQ(j.at("memory").size(), 2u);
  EXPECT_EQ(j.at("memory_equal"), true);
  ASSERT_EQ(j.at("block_manager").size(), 2u);
  EXPECT_EQ(j.at("block_manager")[1].at("blocks"), 4096);
  EXPECT_EQ(j.at("block_manager")[1].at("evicted_share"), 1.0);
}

// Opened and closed in order, no bare & or <: enough for what is drawn here.
void expect_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-zA-Z]+)((?:\\s+[a-zA-Z:-]+=\"[^\"<]*\")*)\\s*(/?)>");
  std::size_t end = 0;
  for (auto it = std::sregex_iterator(xml.begin(), xml.end(), tag); it != std::sregex_iterator();
       ++it) {
    const auto at = static_cast<std::size_t>(it->position());
    const std::string between = xml.substr(end, at - end);
    EXPECT_EQ(between.find('<'), std::string::npos) << between;
    EXPECT_FALSE(std::regex_search(between, std::regex("&(?!(amp|lt|gt);)"))) << between;
    end = at + static_cast<std::size_t>(it->length());
    if ((*it)[1].length() > 0) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*it)[2].str());
      open.pop_back();
    } else if ((*it)[4].length() == 0) {
      open.push_back((*it)[2].str());
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(xml.substr(end), "\n");
}

TEST_F(Scale, SvgHasAPolylineAnOp) {
  ScaleResult r = small();
  for (std::size_t i = 0; i < r.lines.size(); ++i) {
    for (ScalePoint& p : r.lines[i].points) {
      p.us = static_cast<double>((i + 1) * static_cast<std::size_t>(p.x));
    }
  }
  const std::string svg = scale_svg(r);
  expect_well_formed(svg);
  std::size_t lines = 0;
  for (std::size_t at = svg.find("<polyline"); at != std::string::npos;
       at = svg.find("<polyline", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 4u);
  for (const char* text : {">4K<", ">8K<", "context (tokens)", "time of a call", ">1 ms<",
                           "prefers-color-scheme: dark", "A &lt;GPU&gt; &amp; more"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  // Without points an op has no line.
  r.lines[0].points.clear();
  EXPECT_EQ(scale_svg(r).find("points=\"\""), std::string::npos);
}

TEST_F(Scale, MemoryIsWhatTheLayoutReportSays) {
  const ModelConfig config = *preset("v4-flash");
  const auto memory = measure_memory(config, {4096, 65536});
  ASSERT_TRUE(memory);
  const json report =
      json::parse(storage_report(config, {CacheProfile::kA, 1 << 30, 65537, 1, {}}).dump());
  EXPECT_EQ((*memory)[1].kept_per_token, report.at("kept_bytes_per_token").get<double>());
  EXPECT_EQ((*memory)[0].kept_per_token, (*memory)[1].kept_per_token);
  EXPECT_EQ((*memory)[1].kept_blocks, 256);
  EXPECT_EQ((*memory)[1].held_blocks, report.at("request_blocks").get<std::int64_t>());
  EXPECT_TRUE((*memory)[0].equal && (*memory)[1].equal);
}

// Rows that kernels read as finite numbers other than zero.
TEST_F(Scale, CachesHoldValidRows) {
  const ModelConfig config = *preset("v4-flash");
  const auto timer = host_timer(nullptr, 1 << 12);
  ScaleInputs inputs(timer.get());
  for (const CacheSpec& spec : build_cache_layout(config).specs) {
    if (spec.record == AS_RECORD_STATE || spec.layer > 3) continue;
    const as_cache c = inputs.cache(spec, 3);
    ASSERT_FALSE(inputs.error());
    for (std::int64_t slot = 0; slot < 4 * spec.rows_per_block; ++slot) {
      const as_row_address row = as_cache_row(&c, slot);
      std::vector<float> values(static_cast<std::size_t>(spec.width));
      cpu::decode_row(spec.record, spec.width, row.payload, row.scales, values.data());
      float largest = 0;
      for (const float v : values) {
        ASSERT_TRUE(std::isfinite(v)) << spec.name;
        largest = std::max(largest, std::abs(v));
      }
      EXPECT_GT(largest, 0) << spec.name;
    }
  }
}

class ScaleCli : public CliTest {};

TEST_F(ScaleCli, TimesOnTheCpuAndDraws) {
  const Outcome o =
      run({"bench", "scale", "--lane", "cpu", "--max-context", "4096", "--svg", path("scale.svg")});
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* text :
       {"lane cpu", "sparse_attention, C128A", "(160)", "us (logits)", "indexer_topk",
        "equal to what `attnscope blocks layout v4-flash` says", "max/min"}) {
    EXPECT_NE(o.out.find(text), std::string::npos) << text << o.out;
  }
  expect_well_formed(read(path("scale.svg")));
}

TEST_F(ScaleCli, SaysWhatIsWrong) {
  EXPECT_EQ(run({"bench"}).code, 2);
  EXPECT_EQ(run({"bench", "scale", "--max-context", "4095"}).code, 2);
  EXPECT_EQ(run({"bench", "scale", "--max-context", "many"}).code, 2);
  EXPECT_EQ(run({"bench", "scale", "--requests", "0"}).code, 2);
  EXPECT_EQ(run({"bench", "scale", "--lane", "ref.sim"}).code, 2);
  EXPECT_EQ(run({"bench", "scale", "--svg", ""}).code, 2);
  const Outcome folder = run({"bench", "scale", "--lane", "cpu", "--max-context", "4096", "--svg",
                              path("nowhere/scale.svg")});
  EXPECT_EQ(folder.code, 3);
  EXPECT_NE(folder.err.find("nowhere"), std::string::npos) << folder.err;
  EXPECT_EQ(std::count(folder.err.begin(), folder.err.end(), '\n'), 1) << folder.err;
  if (cuda::Device::get()) return;
  const Outcome gpu = run({"bench", "scale", "--lane", "cuda"});
  EXPECT_EQ(gpu.code, 4);
  EXPECT_EQ(std::count(gpu.err.begin(), gpu.err.end(), '\n'), 1) << gpu.err;
}

}  // namespace scale_test
}  // namespace attnscope
