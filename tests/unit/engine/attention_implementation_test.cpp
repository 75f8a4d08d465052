// Which ops serve a backend, that they are looked up at the first use alone, and why there are
// none.
#include "engine/backend/attention_implementation.h"

#include <gtest/gtest.h>

#include "engine/backend/attention_registry.h"
#include "engine/family/models.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace attention_implementation_test {

using Ops = std::vector<as_op_id>;

class AttentionImplementations : public testing::Test {
 protected:
  AttentionImplementations() {
    lanes_.add(*cpu::lane());
    Lane absent{};
    absent.name = "cuda";
    absent.description = "no GPU is here";
    lanes_.add(absent);
  }
  const AttentionBackend& row(const char* name) const { return *backends_.find(name); }
  AttentionLayer layer(const char* model, int i = 0) const {
    return attention_layer(*preset(model), i);
  }
  std::string error(const char* backend, const char* lane) const {
    LayerBackend of(row(backend), layer("tiny-llama"));
    const auto made = of.implementation(lanes_, lane);
    EXPECT_FALSE(of.made() && !made);
    return made ? "made" : made.error().text();
  }

  const AttentionRegistry backends_;
  LaneRegistry lanes_;
};

TEST_F(AttentionImplementations, ServeLayersByTheirKind) {
  EXPECT_EQ(serving_ops(row("FLASH_ATTN"), layer("tiny-llama")),
            (Ops{AS_OP_ROPE_KV_INSERT, AS_OP_PAGED_ATTENTION}));
  // The batch is cut before rows are read; the layer that sees all needs none of it.
  EXPECT_EQ(serving_ops(row("FLASH_ATTN"), layer("tiny-llama4")),
            (Ops{AS_OP_LOCAL_BATCH, AS_OP_ROPE_KV_INSERT, AS_OP_PAGED_ATTENTION}));
  EXPECT_EQ(serving_ops(row("FLASH_ATTN"), layer("tiny-llama4", 3)).size(), 2u);
  EXPECT_EQ(serving_ops(row("FLASHMLA"), layer("tiny-v3"))[2], AS_OP_MLA_ATTENTION);
  EXPECT_EQ(serving_ops(row("FLASHMLA_SPARSE"), layer("tiny-v3.2"))[2], AS_OP_SPARSE_MLA_ATTENTION);
  EXPECT_EQ(serving_ops(row("FLASHMLA_SPARSE_DSV4"), layer("v4-flash"))[1], AS_OP_SPARSE_ATTENTION);
  EXPECT_TRUE(serving_ops(row("ROCM_ATTN"), layer("tiny-llama")).empty());
}

// Every row that runs here has an attention op, and one that writes what it reads.
TEST_F(AttentionImplementations, OfAllThatRunHereWriteAndAttend) {
  int here = 0;
  for (const AttentionBackend& backend : backends_.all()) {
    EXPECT_EQ(backend.ops.empty(), !backend.runs_here()) << backend.name;
    if (!backend.runs_here()) continue;
    ++here;
    int writes = 0, attends = 0;
    for (const as_op_id op : backend.ops) {
      writes += as_op_find(op)->role == AS_ROLE_CACHE_WRITE ? 1 : 0;
      attends += as_op_find(op)->role == AS_ROLE_ATTENTION ? 1 : 0;
      EXPECT_NE(cpu::lane()->ops[op], nullptr) << backend.name;
    }
    EXPECT_EQ(attends, 1) << backend.name;
    EXPECT_EQ(writes, 1) << backend.name;
  }
  EXPECT_GT(here, 5);
}

TEST_F(AttentionImplementations, AreMadeAtTheFirstUseAndKept) {
  LayerBackend of(row("TRITON_ATTN"), layer("tiny-gemma"));
  EXPECT_FALSE(of.made());
  const auto first = of.implementation(lanes_, "cpu");
  ASSERT_TRUE(first) << first.error().text();
  EXPECT_TRUE(of.made());
  EXPECT_EQ((*first)->lane, "cpu");
  EXPECT_EQ((*first)->function(AS_OP_PAGED_ATTENTION), cpu::lane()->ops[AS_OP_PAGED_ATTENTION]);
  EXPECT_EQ((*first)->function(AS_OP_MLA_ATTENTION), nullptr);
  const auto again = of.implementation(lanes_, "cpu");
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, *first);
  const auto other = of.implementation(lanes_, "cuda");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("was made of lane cpu"), std::string::npos);
  EXPECT_EQ(of.layer().window, 32);
  EXPECT_EQ(of.backend().name, "TRITON_ATTN");
}

TEST_F(AttentionImplementations, SayWhyThereAreNone) {
  EXPECT_EQ(error("FLASH_ATTN", "cpu"), "made");
  EXPECT_NE(error("TURBOQUANT", "cpu").find("its packed rows are not among the caches here"),
            std::string::npos);
  EXPECT_NE(error("FLASH_ATTN", "gpu").find("lane \"gpu\" is not known"), std::string::npos);
  EXPECT_NE(error("FLASH_ATTN", "cuda").find("lane cuda: no GPU is here"), std::string::npos);
  LaneRegistry lanes;
  lanes.add(*cpu::lane());
  Lane half = *cpu::lane();
  half.name = "half";
  half.ops[AS_OP_PAGED_ATTENTION] = nullptr;
  lanes.add(half);
  LayerBackend of(row("FLASH_ATTN"), layer("tiny-llama"));
  auto made = of.implementation(lanes, "half");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().text(),
            "lane half has no paged_attention, which FLASH_ATTN needs; lanes "
            "with it: cpu");
  EXPECT_FALSE(of.made()) << "it may be asked for again, of another lane";
  EXPECT_TRUE(of.implementation(lanes, "cpu"));
  half.name = "cuda";
  lanes.add(half);
  LayerBackend processor(row("CPU_ATTN"), layer("tiny-llama"));
  made = processor.implementation(lanes, "cuda");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().text(), "CPU_ATTN does not run on lane cuda; take lane cpu");
}

}  // namespace attention_implementation_test
}  // namespace attnscope
