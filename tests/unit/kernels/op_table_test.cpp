// The op table: one list, and what every entry says.
#include "kernels/params/op_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "engine/session/step/most_taps.h"

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
    if (op->role == AS_ROLE_COPY) writes_cache = false;  // rows that are there already
    EXPECT_EQ(op->role == AS_ROLE_CACHE_WRITE, writes_cache);
    EXPECT_EQ((op->traits & AS_QUANTISES) != 0, puts_out_codes(*op));
    const bool rotates =
        std::string(op->name).find("rope") != std::string::npos || op->role == AS_ROLE_QUERY ||
        std::string(op->name).find("compress_insert") != std::string::npos ||
        std::set<std::string>{"mla_q_absorb", "mla_kv_insert", "index_key_insert"}.contains(
            op->name);
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

TEST(OpTable, ArraysByTapHaveRoom) {
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
    EXPECT_LE(op->num_taps, kMostTaps) << op->name;
  }
}

// A struct may grow at its end: libraries that were built before rely on what it had when released.
TEST(OpTable, StructsAreNoShorterThanWhenReleased) {
  const std::set<std::string> grown = {
      "attn_norm",        "final_norm",   "paged_attention",  "inverse_rope", "wo_a",
      "sparse_attention", "slot_mapping", "varlen_attention", "schedule",     "rope_kv_insert"};
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
    EXPECT_GE(op->params_size, op->first_size) << op->name;
    EXPECT_EQ(op->params_size != op->first_size, grown.contains(op->name))
        << op->name << ": " << op->params_size << " bytes";
  }
}

// What a struct has beside taps lies apart from them, and says where rows are given and turned.
TEST(OpTable, FieldsLieBesideTheTaps) {
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
    SCOPED_TRACE(op->name);
    bool rotates = false;
    std::uint32_t given = 0;
    for (std::uint32_t f = 0; f < op->num_fields; ++f) {
      const as_param_info& field = op->fields[f];
      EXPECT_LT(field.offset, op->params_size);
      for (std::uint32_t t = 0; t < op->num_taps; ++t) {
        EXPECT_NE(field.offset, op->taps[t].offset) << field.name;
      }
      if (field.kind == AS_PARAM_ROPE) {
        rotates = true;
        EXPECT_EQ(as_rope_offset(op->id), field.offset);
      }
      if (std::string(field.name) == "rows_given") given = field.offset;
    }
    EXPECT_EQ(rotates, (op->traits & AS_ROTATES) != 0);
    EXPECT_EQ(as_rope_offset(op->id) != 0, rotates);
    const as_tap_info* row = as_op_row(op->id);
    ASSERT_EQ(row != nullptr, given != 0);
    if (row == nullptr) continue;
    EXPECT_EQ(row->given_by, given);
    EXPECT_EQ(row->direction, AS_TAP_OUT);
    EXPECT_NE(row->optional, 0);
    EXPECT_NE(op->traits & AS_QUANTISES, 0);
    bool followed = false;
    for (std::uint32_t t = 0; t < op->num_taps; ++t) {
      followed |= op->taps[t].follows_row != 0;
      if (op->taps[t].kind == AS_TAP_CACHE && op->taps[t].direction == AS_TAP_OUT) {
        EXPECT_NE(op->taps[t].follows_row, 0) << op->taps[t].name;
      }
    }
    EXPECT_TRUE(followed);
  }
  EXPECT_EQ(as_op_row(999), nullptr);
  EXPECT_EQ(as_rope_offset(999), 0u);
}

}  // namespace op_table_test
}  // namespace attnscope::kernel_tests
