// The property checks by op: each runs an op of a lane on random inputs of an odd shape and judges
// it against both references. Used by the tests of the op and by the proof that planted bugs fail.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "kernels/params/attention_params.h"
#include "tests/property/harness.h"

namespace attnscope::properties {

enum class Lists { kPlain, kHoles, kDuplicates, kSomeEmpty };

struct AttentionCase {
  std::string name;
  std::vector<std::int64_t> lengths;  // tokens known, by request
  std::int64_t queries = 1;           // last tokens of each request
  std::int64_t heads = 1;
  Pages pages{};
  std::int64_t extra = 0;  // columns of the second list, 0 = an SWA-only layer
  Pages extra_pages{};
  Lists lists = Lists::kPlain;
  float q_scale = 1.0f;
  std::size_t first_sink = 0;  // of kSinks, for head 0
  // Requests from this one on prefill over gathered rows, two in a chunk; -1 = none, and no
  // `prefill` among the params.
  std::int64_t gathered = -1;
  std::int32_t plan = 0;  // as_plan_rule: attention is given a plan for so many multiprocessors
  std::int32_t multiprocessors = 132;
};
Report check_attention(const Lane& lane, const AttentionCase& c);

struct InsertCase {
  std::string name;
  std::vector<std::int64_t> lengths;
  std::int64_t queries = 1;
  std::int64_t heads = 1;
  Pages pages{};
  float scale = 1.0f;
  bool compressed_rope = false;
  std::int64_t pad = 0;  // elements between rows
  std::int32_t q_norm = AS_Q_NORM_FP32;
};
Report check_insert(const Lane& lane, const InsertCase& c);

// inverse_rope with codes.
struct TurnedCodesCase {
  std::string name;
  std::int64_t tokens = 1, heads = 1;
  float scale = 1.0f;
  std::int64_t pad = 0;  // elements between rows
  std::int32_t scale_floor = AS_SCALE_FLOOR_1E10;
  bool out_too = false;
};
const std::vector<TurnedCodesCase>& turned_codes_cases();
Report check_turned_codes(const Lane& lane, const TurnedCodesCase& c);

// wo_a in FP8.
struct GroupsCase {
  std::string name;
  std::int64_t tokens = 1, groups = 1, in = 128, out = 128;
  std::int64_t pad = 0;
  bool odd_scales = false;  // of the weight: any numbers, not powers of two
};
const std::vector<GroupsCase>& groups_cases();
Report check_groups_in_fp8(const Lane& lane, const GroupsCase& c);

struct CompressCase {
  std::string name;
  std::int32_t ratio = 4;
  std::int32_t record = AS_RECORD_LATENT;
  std::vector<std::int64_t> lengths;
  std::int64_t split = 0;  // positions below are computed by a first call
  Pages state_pages{4, 0};
  Pages pages{};
  bool hadamard = false;
  bool round_pooled = false;
  bool round_rotated = false;  // with hadamard
  float score_scale = 1.0f;
};
Report check_compress(const Lane& lane, const CompressCase& c);

struct LogitsCase {
  std::string name;
  std::int32_t record = AS_RECORD_INDEX_FP8;
  std::vector<std::int64_t> entries;  // keys, by request
  std::int64_t queries = 1;           // the last one sees all keys, each before one less
  std::int64_t heads = 1;
  Pages pages{};
  std::int32_t spare_columns = 3;
  std::int32_t scores = AS_SCORES_FP32;
  bool as_fp32 = true;  // whether AS_SCORES_E4M3 is to give the numbers of AS_SCORES_FP32 or others
};
Report check_logits(const Lane& lane, const LogitsCase& c);

enum class Scores {
  kNormal,
  kFewValues,
  kAllEqual,
  kNaN,
  kAllNaN,
  kInfinities,
  kZeros,
  kFalling,
  kNarrow,  // one exponent, few bits
  kSplit    // rising scores, then ties with one in 8 better than all
};

struct TopkCase {
  std::string name;
  Scores scores = Scores::kNormal;
  std::vector<std::int32_t> lens;
  std::int64_t k = 1;
  std::int64_t spare_columns = 0;
};
Report check_topk(const Lane& lane, const TopkCase& c);

// exchange_rows on pages of one of three formats, by `which`, with lists drawn for it.
Report check_exchange_rows(const Lane& lane, int which);

// swap_out, or with an odd number swap_in, of blocks of a size by `which`.
Report check_swap_blocks(const Lane& lane, int which);

struct WindowCase {
  std::string name;
  std::vector<std::int64_t> lengths;
  std::int64_t queries = 1;
  std::int32_t block_size = 64;
  std::int32_t window = 128;
  std::int64_t groups = 1;
};
Report check_window(const Lane& lane, const WindowCase& c);

// As WindowCase, with chunks.
struct LocalCase {
  std::string name;
  std::vector<std::int64_t> lengths;
  std::int64_t queries = 1;
  std::int32_t block_size = 16;
  std::int32_t chunk = 32;
  std::int64_t groups = 1;
};
Report check_local_batch(const Lane& lane, const LocalCase& c);

// `queries` tokens at the end of each request, whose first `source` positions are its source.
struct CrossCase {
  std::string name;
  std::vector<std::int64_t> lengths, source;
  std::int64_t queries = 1;
  std::int64_t groups = 1, group = 0;
};
Report check_cross_batch(const Lane& lane, const CrossCase& c);

// Lengths by token, those of entries as often as there are tokens or not at all.
struct PlanCase {
  std::string name;
  std::vector<std::int32_t> window = {}, c4 = {}, c128 = {};
  std::int32_t rule = 2;  // as_plan_rule
  std::int32_t multiprocessors = 132;
  std::int32_t heads = 64, top_k = 512;
};
Report check_attention_plan(const Lane& lane, const PlanCase& c);
// The outputs alone: params with tensors of `memory`, not called yet.
void fill_plan(const PlanCase& c, Memory* memory, as_attention_plan_params* p);

// Of dense attention. `queries` tokens at the end of each request; `heads` is a multiple of
// `kv_heads`.
struct PagedCase {
  std::string name;
  std::vector<std::int64_t> lengths;
  std::int64_t queries = 1;
  std::int64_t heads = 1, kv_heads = 1;
  std::int64_t size = 64, size_v = 64;
  std::int32_t rows = 16;  // of a page
  std::int32_t record = AS_RECORD_BF16;
  std::int32_t window = 0, causal = 1;
  double soft_cap = 0;
  bool sinks = false;
  std::int32_t splits = 0;
  float q_scale = 1.0f;
  std::int32_t chunk = 0;  // tokens
  bool local = false;      // the lane is given the batch of chunks, references whole requests
  float alibi = 0;  // slope of the first head; those behind have two thirds of the one before
  bool rounded_weights = false;  // the lane rounds weights to bf16, as public kernels do
  std::int64_t gap = 6;          // bytes between pages
  std::int64_t bad_value = -1;   // row of the first request whose values hold a NaN and an infinity
  std::int64_t rising = 0;       // by what power of two scales of values rise along a request
  std::int32_t first = 0;        // rows before it nobody sees
  std::int64_t buckets = 0;      // of a bias by distance
  std::int32_t distance = 0;     // of these, where the last one begins at the latest
  std::string mask = {}, score = {};  // expressions
  std::int32_t record_v = 0;          // of values, 0 = as keys
  std::int32_t form = AS_PAGED_ONE_PASS;
  std::int64_t common = 0;     // rows that all requests have in the same blocks
  std::int32_t wide = 0;       // first tokens whose rows have 16 bits, in caches of their own
  std::int32_t wide_rows = 8;  // of a page of theirs
  std::int32_t record_wide = AS_RECORD_BF16;
  bool both = false;  // k_cache and v_cache have rows of these tokens too, other ones
  // Where a mask's places begin, of the first request; 3 more for each behind it. 0 = absent.
  std::int32_t query_start = 0, row_start = 0;
};
Report check_paged_attention(const Lane& lane, const PagedCase& c);
std::vector<PagedCase> coded_cases();    // rows of codes
std::vector<PagedCase> coded_prompts();  // and many tokens of a request over them
std::vector<PagedCase> masked_cases();   // a user's masks and score functions
std::vector<PagedCase> alibi_cases();    // slopes
std::vector<PagedCase> placed_cases();   // these over chunks, behind a source and across
std::vector<PagedCase> formed_cases();   // passes of two kinds
std::vector<PagedCase> sided_cases();    // rows before what is seen, biases by distance
std::vector<PagedCase> wide_cases();     // first tokens in 16 bits beside rows of codes

// Of packed sequences.
struct VarlenCase {
  std::string name;
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> keys = {};  // of the sequences; empty = as many as queries
  std::int64_t behind = 0;              // tokens behind the last sequence
  std::int64_t heads = 1, kv_heads = 1;
  std::int64_t size = 64, size_v = 64;
  std::int32_t causal = 0, left = -1, right = -1;
  double soft_cap = 0;
  float alibi = 0;  // as PagedCase's
  float q_scale = 1.0f;
  bool rounded_weights = false;  // as PagedCase's
  std::int64_t buckets = 0;      // likewise
  std::int32_t distance = 0;     // likewise
  std::int64_t padding = 0;      // tokens at the end of each sequence that are no part of it
};
Report check_varlen(const Lane& lane, const VarlenCase& c);
std::vector<VarlenCase> varlen_cases();

// Of packed sequences under a user's mask and score function, with and without its block mask.
struct MaskCase {
  std::string name, mask, score;
  std::vector<std::int64_t> queries, keys;
  std::int32_t causal = 0;
};
Report check_masked(const Lane& lane, const MaskCase& c);
// Of rows in pages, random ones against a loop over pairs; kind 0: over chunks, 1: across, 2: in a
// decoder behind its source.
Report check_mask_places(const Lane& lane, int kind, std::uint64_t seed);
std::vector<MaskCase> mask_cases();

struct RopeKvCase {
  std::string name;
  std::vector<std::int64_t> lengths;
  std::int64_t queries = 1;
  std::int64_t heads = 1, kv_heads = 1;  // heads 0: no queries
  std::int64_t size = 64, size_v = 64;
  std::int64_t rotated = 64;  // dims; 0 = no embedding
  std::int32_t style = 0;     // as_rope_style
  bool norm = false, plus_one = false;
  std::int32_t rows = 16;
  std::int32_t record = AS_RECORD_BF16;
  float scale = 1.0f;
  bool special = false;   // some heads have a NaN or an infinity, or are zeros
  std::int64_t wide = 0;  // first tokens that have rows of 16 bits too
};
Report check_rope_kv_insert(const Lane& lane, const RopeKvCase& c);
std::vector<RopeKvCase> coded_rows();

// Of absorbed MLA and the indexer that scores tokens.
namespace mla {

struct MlaCase {
  const char* name;
  std::vector<std::int64_t> lengths;
  std::int64_t queries, heads;
  std::int32_t rows, record;
  bool listed;
  std::int64_t width = 40;  // of lists
};
const std::vector<MlaCase>& attention_cases();
Report check_attention(const Lane& lane, const MlaCase& c);

struct RowCase {
  const char* name;
  std::int32_t record, scale_rule;
  float spread;
  std::int32_t hadamard;
};
const std::vector<RowCase>& row_cases();
Report check_latent_rows(const Lane& lane, const RowCase& c);
Report check_index_keys(const Lane& lane, const RowCase& c);
Report check_index_queries(const Lane& lane, const RowCase& c);

// Both parts of kv_b_proj; `plain` dims of a query without RoPE, `values` of a value.
Report check_absorbed(const Lane& lane, std::int64_t plain, std::int64_t values,
                      std::int64_t tokens = 37);

}  // namespace mla

// GoogleTest prints a case by its name.
template <class Case>
std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}
inline void PrintTo(const AttentionCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const PlanCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const InsertCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const PagedCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const MaskCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const VarlenCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const RopeKvCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const CompressCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const LogitsCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const TopkCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const WindowCase& c, std::ostream* out) { *out << c.name; }

}  // namespace attnscope::properties
