// Tensors of a step by number and name, and the memory of a family's own ones.
#include "engine/metadata/step_tensor.h"

#include <gtest/gtest.h>

#include "engine/family/family.h"
#include "engine/metadata/step_metadata.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Whatever a graph binds to a step is one of its tensors.
TEST(StepTensors, EveryBindingOfAGraphHasItsNumber) {
  for (const Family* family : families()) {
    const ModelGraph& graph = example_graph(*family);
    const auto own = family->step_tensors(example_model(*family), CacheLayout());
    const auto check = [&](const LayerGraph& part) {
      for (const Node& node : part.nodes()) {
        for (const Binding& b : node.bindings()) {
          if (b.to != BoundTo::kStep) continue;
          EXPECT_GE(b.number, 0) << b.name;
          EXPECT_EQ(b.number, step_tensor_number(b.name, own)) << b.name;
        }
      }
    };
    check(graph.before);
    for (const LayerGraph& layer : graph.layers) check(layer);
    check(graph.after);
  }
  EXPECT_EQ(step_tensor_number("nothing", {}), -1);
  StepMetadata step;
  EXPECT_FALSE(present(step_tensor(-1, step, CacheLayout())));
}

TEST(StepTensors, AreSizedByTheirKindInTheMemoryTheyHave) {
  StepTensor lists{.name = "lists", .kind = StepTensor::Kind::kLists};
  lists.lists_by = StepTensor::ListsBy::kWindowGroup;
  lists.lists = 2;
  lists.columns = 3;
  lists.assign(4, 9);
  EXPECT_EQ(lists.numbers, std::vector<std::int32_t>(24, -1));
  const std::int32_t* memory = lists.numbers.data();
  lists.clear();
  EXPECT_TRUE(lists.empty());
  lists.assign(2, 9);
  EXPECT_EQ(lists.numbers.data(), memory);
  const as_tensor all = lists.tensor(2, 9), second = lists.list(1, 2, 9);
  EXPECT_EQ(all.rank, 3);
  EXPECT_EQ(second.data, memory + 6);
  EXPECT_EQ(second.shape[1], 3);

  StepTensor grows{.name = "grows", .kind = StepTensor::Kind::kLists, .columns = kGrows};
  grows.assign(2, 5);
  EXPECT_EQ(grows.numbers.size(), 10u);
  EXPECT_EQ(grows.tensor(2, 5).rank, 2);
  StepTensor lengths{.name = "lengths"};
  lengths.assign(3, 5);
  EXPECT_EQ(lengths.numbers, std::vector<std::int32_t>(3, 0));
  StepTensor splits{.name = "splits", .kind = StepTensor::Kind::kPlanSplits};
  splits.lists_by = StepTensor::ListsBy::kLayerType;
  splits.more_rows = 4;
  splits.lists = 3;
  splits.columns = 5;
  splits.assign(2, 9);
  EXPECT_EQ(splits.numbers, std::vector<std::int32_t>(3 * (2 + 4) * 5, -1));
  EXPECT_EQ(splits.tensor(2, 9).shape[1], 6);
  EXPECT_EQ(splits.list(2, 2, 9).data, splits.numbers.data() + 60);
  StepTensor counts{.name = "counts", .kind = StepTensor::Kind::kPlanCounts};
  counts.lists_by = StepTensor::ListsBy::kLayerType;
  counts.lists = 3;
  counts.columns = 2;
  counts.assign(7, 9);
  EXPECT_EQ(counts.numbers, std::vector<std::int32_t>(6, 0));
  EXPECT_EQ(counts.tensor(7, 9).rank, 2);
  StepTensor unused{.name = "unused", .kind = StepTensor::Kind::kSlots, .used = false};
  unused.assign(3, 5);
  EXPECT_TRUE(unused.empty());
  EXPECT_FALSE(present(unused.tensor(3, 5)));
}

}  // namespace
}  // namespace attnscope
