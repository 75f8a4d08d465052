// The op table: one list, what every entry says, and how large its structs were when released.
#include "kernels/params/op_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace attnscope::kernel_tests {
namespace op_table_test {

TEST(OpTable, IsOneListOfIdsAndNames) {
  std::set<std::string> names;
  int count = 0;
  for (; const as_op_info* op = as_op_at(count); ++count) {
    SCOPED_TRACE(op->name);
    EXPECT_EQ(as_op_index(op->id), count);
    EXPECT_EQ(as_op_find(op->id), op);
    EXPECT_EQ(as_op_by_name(op->name), op->id);
    EXPECT_TRUE(names.insert(op->name).second);
    const bool helper = op->phase == AS_PHASE_NONE;
    EXPECT_EQ(helper, op->id >= AS_OP_COUNT) << "ids below have a place in a step";
    EXPECT_EQ(op->layers == 0, helper);
    EXPECT_EQ(as_step_op_by_name(op->name), helper ? -1 : op->id);
  }
  EXPECT_EQ(count, AS_NUM_OPS);
  for (const int id : {-1, AS_OP_COUNT + 0, 999, AS_END_OF_HELPERS + 0}) {
    EXPECT_EQ(as_op_index(id), -1) << id;
    EXPECT_EQ(as_op_find(id), nullptr) << id;
  }
  EXPECT_EQ(as_op_at(-1), nullptr);
  EXPECT_EQ(as_op_by_name("nobody"), -1);
}

// Of a cache: codes narrower than bf16 that others read.
bool puts_out_codes(const as_op_info& op) {
  for (std::uint32_t i = 0; i < op.num_taps; ++i) {
    if (op.taps[i].direction == AS_TAP_OUT && std::string(op.taps[i].rule) == "bytes" &&
        std::string(op.taps[i].dtype) != "bf16|f32" && op.role != AS_ROLE_COPY) {
      return true;
    }
  }
  return false;
}

TEST(OpTable, EveryOpHasARoleAndTraitsThatFitItsTaps) {
  std::map<int, int> ops_of;
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
    SCOPED_TRACE(op->name);
    EXPECT_GT(op->role, AS_ROLE_UNKNOWN);
    EXPECT_LT(op->role, AS_ROLE_COUNT);
    EXPECT_STRNE(as_role_name(op->role), "?");
    ++ops_of[op->role];
    bool writes_cache = false;
    for (std::uint32_t t = 0; t < op->num_taps; ++t) {
      writes_cache |= op->taps[t].direction == AS_TAP_OUT && op->taps[t].kind == AS_TAP_CACHE;
    }
    EXPECT_EQ(op->role == AS_ROLE_CACHE_WRITE, writes_cache);
    EXPECT_EQ((op->traits & AS_QUANTISES) != 0, puts_out_codes(*op));
    const bool rotates = std::string(op->name).find("rope") != std::string::npos ||
                         op->role == AS_ROLE_QUERY ||
                         std::string(op->name).find("compress_insert") != std::string::npos;
    EXPECT_EQ((op->traits & AS_ROTATES) != 0, rotates);
    EXPECT_EQ(op->traits & ~(AS_ROTATES | AS_QUANTISES | AS_FUSES | AS_BY_ENGINE), 0);
    EXPECT_EQ(as_op_role(op->id), op->role);
    EXPECT_EQ(as_op_has(op->id, AS_BY_ENGINE) != 0,
              op->id == AS_OP_SCHEDULE || op->id == AS_OP_BLOCK_TABLES);
  }
  for (int role = AS_ROLE_UNKNOWN + 1; role < AS_ROLE_COUNT; ++role) {
    EXPECT_GT(ops_of[role], 0) << as_role_name(role) << ": no op has it";
  }
  EXPECT_EQ(as_op_has(999, 255), 0);
  EXPECT_EQ(as_op_role(999), AS_ROLE_UNKNOWN);
  EXPECT_STREQ(as_role_name(AS_ROLE_UNKNOWN), "?");
  EXPECT_STREQ(as_role_name(AS_ROLE_COUNT), "?");
}

// Bytes of each struct in the release that brought the op. A struct may grow at its end: the table
// then says this number, which libraries built before rely on.
TEST(OpTable, StructsAreNoShorterThanWhenReleased) {
  const std::map<std::string, int> released = {{"schedule", 808},
                                               {"block_tables", 800},
                                               {"slot_mapping", 720},
                                               {"swa_index", 544},
                                               {"c128_index", 456},
                                               {"attn_norm", 280},
                                               {"q_kv_a_proj", 360},
                                               {"q_kv_norm", 456},
                                               {"q_b_proj", 360},
                                               {"q_rope_kv_insert", 792},
                                               {"compressor_proj", 360},
                                               {"compressor_state", 472},
                                               {"compress_insert", 904},
                                               {"indexer_compressor_proj", 360},
                                               {"indexer_compressor_state", 472},
                                               {"indexer_compress_insert", 904},
                                               {"indexer_q_proj", 360},
                                               {"indexer_q", 776},
                                               {"indexer_weights_proj", 360},
                                               {"indexer_logits", 728},
                                               {"indexer_topk", 272},
                                               {"topk_to_slots", 456},
                                               {"sparse_attention", 928},
                                               {"inverse_rope", 400},
                                               {"wo_a", 272},
                                               {"wo_b", 360},
                                               {"residual", 272},
                                               {"final_norm", 280},
                                               {"lm_head", 360},
                                               {"sample", 184},
                                               {"rope_kv_insert", 1160},
                                               {"paged_attention", 952},
                                               {"merge_states", 544},
                                               {"gather_rows", 288},
                                               {"copy_blocks", 280},
                                               {"workspace_attention", 632},
                                               {"inverse_rope_quantise", 488},
                                               {"fp8_linear", 448}};
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
    const auto at = released.find(op->name);
    if (at == released.end()) {
      ADD_FAILURE() << "enter {\"" << op->name << "\", " << op->params_size << "}";
      continue;
    }
    EXPECT_EQ(op->first_size, at->second) << op->name << " says what it was when released";
    EXPECT_GE(op->params_size, at->second) << op->name;
  }
}

}  // namespace op_table_test
}  // namespace attnscope::kernel_tests
