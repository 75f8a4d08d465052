// The property checks of the helper ops: each runs one of a lane on random inputs of an odd shape
// and judges it against the reference. The GPU tests run the same checks.
#pragma once

#include "kernels/params/helper_params.h"
#include "tests/property/checks.h"

namespace attnscope::properties {

struct MergeCase {
  std::string name;
  std::int64_t tokens = 1, heads = 1, dim = 512;
  std::int32_t dtype = AS_BF16;
  bool base_2 = false;
  bool in_place = false;
};
Report check_merge(const Lane& lane, const MergeCase& c);

struct GatherCase {
  std::string name;
  std::int32_t record = AS_RECORD_LATENT;
  std::int32_t width = 512;
  std::vector<std::int64_t> lengths;
  Pages pages{};
  std::int32_t dtype = AS_BF16;
};
Report check_gather(const Lane& lane, const GatherCase& c);

struct ConvertCase {
  std::string name;
  std::int32_t from = AS_RECORD_BF16, to = AS_RECORD_BF16;
  std::int64_t heads = 1, size = 64, rows = 16, to_rows = 16;  // of a page
  std::int64_t pages = 5;
};
Report check_convert(const Lane& lane, const ConvertCase& c);
std::vector<ConvertCase> convert_cases();

struct CopyCase {
  std::string name;
  std::int64_t blocks = 1, bytes = 64, pad = 0, pairs = 1;
  bool exchange = false;
  bool one_pool = false;
};
Report check_copy(const Lane& lane, const CopyCase& c);

struct WorkspaceCase {
  std::string name;
  std::int64_t tokens = 1, heads = 1, rows = 1, columns = 1;
  Lists lists = Lists::kPlain;
  std::int64_t pad = 0;
};
Report check_workspace(const Lane& lane, const WorkspaceCase& c);

struct TurnCase {
  std::string name;
  std::int64_t tokens = 1, heads = 1, dim = 512;
  float scale = 1.0f;
  std::int64_t pad = 0;
};
Report check_turn(const Lane& lane, const TurnCase& c);

struct Fp8Case {
  std::string name;
  std::int64_t tokens = 1, in = 128, out = 1;
  std::int32_t dtype = AS_BF16;
  bool odd_scales = false;  // not powers of two
  std::int64_t pad = 0;
};
Report check_fp8(const Lane& lane, const Fp8Case& c);

std::vector<MergeCase> merge_cases();
std::vector<GatherCase> gather_cases();
std::vector<CopyCase> copy_cases();
std::vector<WorkspaceCase> workspace_cases();
std::vector<TurnCase> turn_cases();
std::vector<Fp8Case> fp8_cases();

// Tables and lists of a batch: most of a sequence's rows are columns x block_size; `room` behind
// the end of lists.
struct TableCase {
  std::string name;
  std::int64_t sequences = 1, block_size = 16, columns = 1;
  std::int64_t room = 0, pad = 0;
};
Report check_sequence_table(const Lane& lane, const TableCase& c);
Report check_page_indices(const Lane& lane, const TableCase& c);
Report check_compact_tables(const Lane& lane, const TableCase& c);
Report check_pad_rows(const Lane& lane, const TableCase& c);
std::vector<TableCase> table_cases();

inline void PrintTo(const MergeCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const GatherCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const CopyCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const WorkspaceCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const TurnCase& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const Fp8Case& c, std::ostream* out) { *out << c.name; }
inline void PrintTo(const TableCase& c, std::ostream* out) { *out << c.name; }

// Calls a helper op; a refusal goes into the report.
template <class Params>
bool run_helper(const Lane& lane, as_op_id id, const Params& params, Report* report) {
  as_error error{};
  as_call call{};
  call.struct_size = sizeof(call);
  const as_op_fn function = lane.ops[id];
  if (function(&params, &call, &error) == AS_OK) return true;
  report->fail("call", std::string(lane.name) + " refused: " + error.message);
  return false;
}

template <class Params>
Params helper_params() {
  Params p{};
  p.head = {sizeof(Params), AS_PARAMS_VERSION};
  return p;
}

}  // namespace attnscope::properties
