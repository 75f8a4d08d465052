// The property checks bite: lanes with a planted bug, one or more for each kind of check, fail the
// check of their op, and in the output that the bug spoils. The CPU lane passes the very same
// cases.
#include <functional>
#include <map>

#include "kernels/mutants/mutants.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace mutants_property_test {

// A check, the output that the bug must be seen in against ref.sim, and outputs that follow from
// it. All others must be right.
struct Trap {
  std::function<Report(const Lane&)> check;
  std::string spoiled;
  std::set<std::string> follow;
};

Report gathered(const Lane& lane) {
  AttentionCase c{"gathered mutants", {129, 300}, 20, 8, {53, 7}};
  c.extra = 40;
  c.extra_pages = {61, 1};
  c.gathered = 0;
  return check_attention(lane, c);
}

Report long_selection(const Lane& lane) {
  AttentionCase c{"mutants", {129, 300}, 2, 8, {53, 7}};
  c.extra = 40;
  c.extra_pages = {61, 1};
  return check_attention(lane, c);
}

Report compress(const Lane& lane) {
  CompressCase c{"mutants", 4, AS_RECORD_LATENT, {129, 40}, 18};
  c.pages = {53, 3};
  return check_compress(lane, c);
}

// Every number of it matters: groups, window, cap, sink, splits, several requests.
Report paged(const Lane& lane) {
  PagedCase c{"mutants", {129, 300, 90}, 2, 8, 2};
  c.window = 70;
  c.soft_cap = 2;
  c.splits = 3;
  c.q_scale = 3.0f;
  return check_paged_attention(lane, c);
}

// Slopes, distances, a scale that is not 1.
Report alibi(const Lane& lane) {
  PagedCase c{"mutants", {129, 300, 90}, 2, 8, 2};
  c.alibi = 0.5f;
  return check_paged_attention(lane, c);
}

// Keys of their own lengths, so that places matter; a window of two sides, cap and slopes.
Report varlen(const Lane& lane) {
  VarlenCase c{"mutants", {60, 33, 90}, {70, 33, 95}, 2, 8, 2};
  c.left = 20;
  c.right = 6;
  c.soft_cap = 2;
  c.alibi = 0.3f;
  c.q_scale = 3.0f;
  return check_varlen(lane, c);
}

Report chunks(const Lane& lane) {
  PagedCase c{"mutants", {129, 300, 90}, 70, 8, 2};
  c.chunk = 64;
  c.local = true;
  return check_paged_attention(lane, c);
}

// A decoder behind its source.
Report sided(const Lane& lane) {
  PagedCase c{"mutants", {129, 300, 90}, 20, 8, 2};
  c.first = 40;
  c.buckets = 16;
  c.distance = 40;
  return check_paged_attention(lane, c);
}

// Cross attention: tokens behind the source.
Report cross(const Lane& lane) {
  PagedCase c{"mutants", {129, 300, 90}, 5, 8, 2};
  c.causal = 0;
  return check_paged_attention(lane, c);
}

// A mask and a score function that are not the same the other way round.
Report masked(const Lane& lane) {
  PagedCase c{"mutants", {129, 300, 90}, 20, 8, 2};
  c.causal = 0;
  c.mask = "kv_idx <= q_idx && (head % 2 == 0 || kv_idx % 3 != 0)";
  c.score = "score * 0.5 + 0.02 * (kv_idx - q_idx)";
  return check_paged_attention(lane, c);
}

// The same of chunks, and across from a decoder to its source.
Report masked_chunks(const Lane& lane) { return check_paged_attention(lane, placed_cases()[1]); }
Report masked_across(const Lane& lane) { return check_paged_attention(lane, placed_cases()[3]); }

Report cross_batch(const Lane& lane) {
  return check_cross_batch(lane, {"mutants", {129, 40, 300}, {100, 39, 200}, 70, 2, 1});
}

// An encoder beside what a decoder begins with.
Report source(const Lane& lane) {
  VarlenCase c{"mutants", {60, 33, 90}, {}, 2, 8, 2};
  c.padding = 2;
  c.buckets = 32;
  c.distance = 50;
  return check_varlen(lane, c);
}

Report local(const Lane& lane) {
  return check_local_batch(lane, {"mutants", {129, 40, 300}, 70, 16, 32, 2});
}

Report rope_kv(const Lane& lane) {
  RopeKvCase c{"mutants", {129, 40}, 5, 4, 2};
  c.rotated = 32;
  c.norm = true;
  return check_rope_kv_insert(lane, c);
}

// Rows of codes as they are read, and as they are written.
Report read_codes(const Lane& lane, std::int32_t record) {
  PagedCase c{"mutants", {129, 300, 90}, 2, 8, 2};
  c.record = record;
  c.gap = 32;
  return check_paged_attention(lane, c);
}
Report written_codes(const Lane& lane) {
  RopeKvCase c{"mutants", {129, 40}, 5, 4, 2};
  c.record = AS_RECORD_INT8_TOKEN_HEAD;
  return check_rope_kv_insert(lane, c);
}

// By the name of the mutant.
const std::map<std::string, Trap>& traps() {
  static const std::map<std::string, Trap> kTraps = {
      {"mutant:window_off_by_one",
       {[](const Lane& lane) {
          return check_window(lane, {"mutants", {127, 128, 129, 3}, 2, 64, 128, 2});
        },
        "indices",
        {"lens"}}},
      {"mutant:topk_one_short",
       {[](const Lane& lane) {
          return check_topk(lane, {"mutants", Scores::kNormal, {1, 127, 128, 129}, 64, 1});
        },
        "indices",
        {}}},
      {"mutant:scale_rounded_down",
       {[](const Lane& lane) {
          return check_insert(lane, {"mutants", {127, 129}, 5, 2, {53, 7}});
        },
        "cache",
        {}}},
      {"mutant:relu_missing",
       {[](const Lane& lane) {
          return check_logits(lane, {"mutants", AS_RECORD_INDEX_FP8, {127, 129}, 2, 8, {53, 7}});
        },
        "logits",
        {}}},
      {"mutant:sink_scaled", {long_selection, "o", {}}},
      {"mutant:lse_with_sink", {long_selection, "lse", {}}},
      {"mutant:lse_in_base_2", {long_selection, "lse", {}}},
      {"mutant:gathered_part_offset_lost", {gathered, "o", {"lse"}}},
      {"mutant:gathered_window_not_shifted", {gathered, "o", {"lse"}}},
      {"mutant:gathered_length_not_added", {gathered, "o", {"lse"}}},
      {"mutant:rope_style_swapped", {rope_kv, "q_out", {"k_row"}}},
      {"mutant:norm_weight_offset", {rope_kv, "k_row", {"q_out"}}},
      {"mutant:rope_position_of_chunk", {rope_kv, "q_out", {"k_row"}}},
      {"mutant:value_heads_transposed", {rope_kv, "v_cache", {}}},
      {"mutant:kv_group_off_by_one", {paged, "o", {"lse"}}},
      {"mutant:window_inclusive", {paged, "lse", {"o"}}},
      {"mutant:scale_missing", {paged, "o", {"lse"}}},
      {"mutant:cap_before_scale", {paged, "o", {"lse"}}},
      {"mutant:splits_merged_base_2", {paged, "lse", {"o"}}},
      {"mutant:values_of_key_pages", {paged, "o", {}}},
      {"mutant:table_of_next_request", {paged, "o", {"lse"}}},
      {"mutant:alibi_missing", {alibi, "o", {"lse"}}},
      {"mutant:alibi_slope_of_next_head", {alibi, "o", {"lse"}}},
      {"mutant:alibi_sign", {alibi, "o", {"lse"}}},
      {"mutant:alibi_by_position", {alibi, "lse", {}}},
      {"mutant:alibi_before_scale", {alibi, "o", {"lse"}}},
      {"mutant:alibi_any_head_count", {alibi, "o", {"lse"}}},
      {"mutant:varlen_border_late", {varlen, "o", {"lse"}}},
      {"mutant:varlen_one_sequence", {varlen, "o", {"lse"}}},
      {"mutant:varlen_causal_turned", {varlen, "o", {"lse"}}},
      {"mutant:varlen_window_mirrored", {varlen, "o", {"lse"}}},
      {"mutant:varlen_window_short", {varlen, "lse", {"o"}}},
      {"mutant:varlen_scale_missing", {varlen, "o", {"lse"}}},
      {"mutant:varlen_cap_before_scale", {varlen, "o", {"lse"}}},
      {"mutant:varlen_slope_of_next_head", {varlen, "o", {"lse"}}},
      {"mutant:varlen_lse_base_2", {varlen, "lse", {}}},
      {"mutant:varlen_kv_head_of_neighbour", {varlen, "o", {"lse"}}},
      {"mutant:chunk_as_window", {chunks, "o", {"lse"}}},
      {"mutant:chunk_border_late",
       {local, "token_to_seq", {"local_positions", "local_query_start_loc"}}},
      {"mutant:chunk_queries_exchanged", {local, "token_to_seq", {}}},
      {"mutant:chunk_table_of_neighbour", {local, "local_tables", {}}},
      {"mutant:chunk_from_step",
       {local,
        "local_positions",
        {"token_to_seq", "local_query_start_loc", "local_seq_lens", "local_tables"}}},
      {"mutant:mask_ignored", {masked, "o", {"lse"}}},
      {"mutant:mask_transposed", {masked, "o", {"lse"}}},
      {"mutant:mask_of_next_head", {masked, "o", {"lse"}}},
      {"mutant:mask_from_chunk", {masked_chunks, "o", {"lse"}}},
      {"mutant:mask_causal_across", {masked_across, "o", {"lse"}}},
      {"mutant:mask_from_source", {masked_across, "o", {"lse"}}},
      {"mutant:score_ignored", {masked, "o", {"lse"}}},
      {"mutant:score_twice", {masked, "o", {"lse"}}},
      {"mutant:cache_scale_of_next_head", {written_codes, "k_cache", {"v_cache"}}},
      {"mutant:cache_zero_negated", {written_codes, "k_cache", {"v_cache"}}},
      {"mutant:fp8_read_as_other",
       {[](const Lane& lane) { return read_codes(lane, AS_RECORD_E5M2_TOKEN_HEAD); },
        "o",
        {"lse"}}},
      {"mutant:scale_of_keys_alone",
       {[](const Lane& lane) { return read_codes(lane, AS_RECORD_FP8_HEAD); }, "o", {}}},
      {"mutant:zero_point_ignored",
       {[](const Lane& lane) { return read_codes(lane, AS_RECORD_INT8_TOKEN_HEAD); }, "o", {}}},
      {"mutant:cross_source_late", {cross_batch, "source_to_req", {"target_to_req"}}},
      {"mutant:cross_keys_by_decode", {cross_batch, "source_slots", {}}},
      {"mutant:cross_all_are_target", {cross_batch, "target_to_req", {}}},
      {"mutant:cross_keys_of_neighbour", {cross, "o", {"lse"}}},
      {"mutant:cross_causal", {cross, "o", {"lse"}}},
      {"mutant:cross_source_short", {cross, "lse", {"o"}}},
      {"mutant:decoder_begins_late", {sided, "lse", {"o"}}},
      {"mutant:bias_of_next_head", {sided, "o", {"lse"}}},
      {"mutant:bias_both_sides", {sided, "o", {"lse"}}},
      {"mutant:bias_mirrored", {source, "o", {"lse"}}},
      {"mutant:bias_missing", {source, "o", {"lse"}}},
      {"mutant:source_with_target", {source, "o", {"lse"}}},
      {"mutant:overlap_half_lost", {compress, "row", {"cache"}}},
      {"mutant:entry_rope_position", {compress, "row", {"cache"}}},
  };
  return kTraps;
}

std::vector<Lane> trapped() {
  std::vector<Lane> lanes;
  for (const Lane& lane : mutants::lanes()) {
    if (traps().count(lane.name) > 0) lanes.push_back(lane);
  }
  return lanes;
}

class MutantProperty : public testing::TestWithParam<Lane> {};

TEST(MutantProperties, EveryTrapHasItsLane) { EXPECT_EQ(trapped().size(), traps().size()); }

TEST_P(MutantProperty, FailsWhereItsBugIs) {
  const Trap& trap = traps().at(GetParam().name);
  const Report right = trap.check(*cpu::lane());
  EXPECT_TRUE(right.ok()) << right;
  const Report wrong = trap.check(GetParam());
  EXPECT_FALSE(wrong.ok()) << GetParam().description;
  for (const std::string& tap : wrong.taps()) {
    const std::string output = tap.substr(0, tap.find(" against"));
    EXPECT_TRUE(output == trap.spoiled || trap.follow.count(output) > 0)
        << tap << " should be right. " << wrong;
  }
  EXPECT_EQ(wrong.taps().count(trap.spoiled), 1u) << wrong;
}

INSTANTIATE_TEST_SUITE_P(Lanes, MutantProperty, testing::ValuesIn(trapped()),
                         [](const testing::TestParamInfo<Lane>& test) {
                           const std::string name = test.param.name;
                           return name.substr(name.find(':') + 1);
                         });

}  // namespace mutants_property_test
}  // namespace attnscope::properties
