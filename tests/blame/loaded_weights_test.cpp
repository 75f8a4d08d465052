// What a session reads from a checkpoint against a second reading of the file.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/checkpoint/export_checkpoint.h"
#include "engine/checkpoint/second_reading.h"
#include "engine/checkpoint/weight_slots.h"
#include "engine/family/model_weights.h"
#include "tests/blame/planted_around.h"
#include "tests/blame/stored_otherwise.h"

namespace attnscope {
namespace loaded_weights_test {

namespace fs = std::filesystem;

class LoadedWeights : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attnscope-loaded-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A scenario on a checkpoint of its own model.
  Scenario exported(ExportDtype dtype, const char* profile = "vllm", int ranks = 1) {
    Scenario scenario = tiny_scenario(7, 150, profile);
    ModelConfig plain = scenario.model;
    plain.switches = *profile_switches("vllm");
    const Weights weights = synthetic_weights(plain, 7, nullptr);
    const std::string to = (folder_ / (dtype == ExportDtype::kFp8 ? "fp8" : "bf16")).string();
    if (!fs::exists(to)) {
      const auto done = export_checkpoint(weights, plain, to, dtype, nullptr);
      EXPECT_TRUE(done) << done.error().text();
    }
    scenario.checkpoint = to;
    scenario.parallel = {ranks, ranks - 1};
    return scenario;
  }

  fs::path folder_;
};

// The last head's sink comes first.
void rotate_sinks(Weights& w) {
  Buffer<float>& sinks = w.layers[1]["sinks"].f32;
  std::rotate(sinks.data(), sinks.data() + sinks.size() - 1, sinks.data() + sinks.size());
}

// Of rows and columns 128 to 255 of wq_b, decoded; codes keep a scale of their own.
void double_block(Weights& w) {
  Weight& wq_b = w.layers[2]["wq_b"];
  if (wq_b.fp8.scales.size() > 0) {
    wq_b.fp8.scales.data()[1] *= 2;
    return;
  }
  const std::int64_t columns = wq_b.bf16.shape()[1];
  for (std::int64_t r = 128; r < 256; ++r) {
    for (std::int64_t c = 0; c < 128; ++c) {
      std::uint16_t& bits = wq_b.bf16.data()[r * columns + c].bits;
      if ((bits & 0x7f80) != 0) bits += 0x80;
    }
  }
}

const BetweenOps kRotated = {.loaded = rotate_sinks}, kDoubled = {.loaded = double_block};

TEST_F(LoadedWeights, SinksOfOtherHeadsAreNamed) {
  for (const int ranks : {1, 2}) {
    const PlantedRun run = run_with(exported(ExportDtype::kBf16, "vllm", ranks), kRotated);
    expect_blamed(run, 0, 1, AS_OP_SPARSE_ATTENTION, "sinks.loaded",
                  {"loading the checkpoint", "layers.1.attn.attn_sink", "element 0", "4 of 4",
                   ranks == 1 ? "which the file has" : "of rank 0"});
  }
}

TEST_F(LoadedWeights, AScaleOfABlockIsNamed) {
  expect_blamed(run_with(exported(ExportDtype::kFp8), kDoubled), 0, 2, AS_OP_Q_B_PROJ,
                "weight.loaded", {"layers.2.attn.wq_b.weight", "element row 128, column 0: "});
  expect_blamed(run_with(exported(ExportDtype::kFp8, "vllm,projections=fp8"), kDoubled), 0, 2,
                AS_OP_Q_B_PROJ, "weight.loaded",
                {"layers.2.attn.wq_b.weight", "element row 128, column 0: scale "});
}

// All formats that are read, by whole models and by ranks, agree with the loader.
TEST_F(LoadedWeights, ASoundLoaderIsNotAccused) {
  for (const ExportDtype dtype : {ExportDtype::kBf16, ExportDtype::kFp8}) {
    for (const char* profile : {"vllm", "vllm,projections=fp8"}) {
      for (const int ranks : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} {} {}", static_cast<int>(dtype), profile, ranks));
        Scenario scenario = exported(dtype, profile, ranks);
        scenario.model.sink_shift = ranks == 2 ? 0.1 : 0;
        auto session = session_of(scenario);
        const SessionParts& parts = session->parts();
        auto found = check_loaded(scenario.checkpoint, scenario.model, scenario.parallel,
                                  *parts.weights_read, parts.ranks);
        ASSERT_TRUE(found) << found.error().text();
        for (const TapResult& result : *found) ADD_FAILURE() << result.note;
      }
    }
  }
}

// What is stored in other floats is rounded once, by the loader as by the second reading.
TEST_F(LoadedWeights, Float64AndFloat16AreReadTwiceTheSame) {
  for (const ElementType type : {ElementType::kF64, ElementType::kF16}) {
    Scenario scenario = exported(ExportDtype::kBf16);
    store_otherwise(scenario.checkpoint, type);
    for (const char* profile : {"vllm", "vllm,projections=fp8"}) {
      SCOPED_TRACE(fmt::format("{} {}", element_name(type), profile));
      scenario.model.switches = *profile_switches(profile);
      auto session = session_of(scenario);
      const SessionParts& parts = session->parts();
      for (const TensorUse& use : *parts.weights_read) EXPECT_EQ(use.dtype, element_name(type));
      auto found = check_loaded(scenario.checkpoint, scenario.model, scenario.parallel,
                                *parts.weights_read, parts.ranks);
      ASSERT_TRUE(found) << found.error().text();
      for (const TapResult& result : *found) ADD_FAILURE() << result.note;
    }
    const PlantedRun run = run_with(scenario, kRotated);
    expect_blamed(run, 0, 1, AS_OP_SPARSE_ATTENTION, "sinks.loaded", {"layers.1.attn.attn_sink"});
    fs::remove_all(scenario.checkpoint);
  }
}

// Every tensor in turn: one value of what was read is another one.
TEST_F(LoadedWeights, EveryTensorIsRead) {
  const Scenario scenario = exported(ExportDtype::kBf16);
  auto session = session_of(scenario);
  const SessionParts& parts = session->parts();
  int tensors = 0;
  for (const WeightSlot& slot : weight_slots(parts.config, *parts.weights)) {
    SCOPED_TRACE(slot.name);
    const auto flip = [&] {
      if (slot.bf16 != nullptr) slot.bf16[slot.size() - 1].bits ^= 1;
      if (slot.f32 != nullptr) slot.f32[slot.size() - 1] *= -1;
    };
    flip();
    auto found = check_loaded(scenario.checkpoint, scenario.model, scenario.parallel,
                              *parts.weights_read, parts.ranks);
    flip();
    ASSERT_TRUE(found) << found.error().text();
    ASSERT_EQ(found->size(), 1u);
    EXPECT_TRUE(found->front().note.starts_with(slot.name)) << found->front().note;
    EXPECT_EQ(found->front().layer, slot.layer);
    EXPECT_EQ(found->front().introduced->beyond, 1);
    ++tensors;
  }
  EXPECT_EQ(tensors, static_cast<int>(parts.weights_read->size()));
}

TEST_F(LoadedWeights, AFileThatIsGoneIsAnError) {
  const Scenario scenario = exported(ExportDtype::kBf16);
  auto session = session_of(scenario);
  const SessionParts& parts = session->parts();
  const auto again = [&] {
    return check_loaded(scenario.checkpoint, scenario.model, scenario.parallel, *parts.weights_read,
                        parts.ranks);
  };
  for (const auto& file : fs::directory_iterator(scenario.checkpoint)) {
    if (file.path().extension() != ".safetensors") continue;
    fs::resize_file(file.path(), fs::file_size(file.path()) / 2);
    const auto cut = again();
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().code, AS_BAD_INPUT);
    break;
  }
  fs::remove_all(scenario.checkpoint);
  ASSERT_FALSE(again());
}

}  // namespace loaded_weights_test
}  // namespace attnscope
