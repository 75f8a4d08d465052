// One call of one op, kept: its numbers, what it read and what it wrote. Small and self-contained:
// of a cache the rows that were read or written, of the rotary table the rows of its positions.
//
//   auto kept = keep_case(*op, params, origin);     // of a struct that has just run
//   auto call = CaseCall::make(*kept);              // memory laid out as it was
//   lane->ops[op->id](call->params(), &as_call, &error);
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/opcase/case_op.h"
#include "kernels/layout/records.h"
#include "kernels/params/numeric_rules.h"
#include "kernels/params/row_format.h"

namespace attnscope {

// Where a case comes from, for people.
struct CaseOrigin {
  std::string from;  // scenario, capture or dump
  std::string lane;  // who wrote the outputs
  std::int64_t step = -1;
  int layer = -1;
};

struct StoredTensor {
  std::int32_t dtype = AS_F32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;  // in elements; empty = dense
  std::vector<std::uint8_t> bytes;   // dense
};

// A paged cache: rows in logical record order (payload, then scales), by ascending slot.
struct StoredCache {
  std::int32_t record = AS_RECORD_NONE;  // NONE = absent
  std::int32_t rows_per_block = 0;
  std::int32_t width = 0;
  std::int64_t blocks = 0;
  std::int64_t page_stride = 0;  // bytes from page to page
  std::vector<std::int64_t> slots;
  std::vector<std::uint8_t> rows;  // [slots, row bytes]
  std::int32_t heads = 0;          // KV heads of a row; 0 = 1

  as_row_layout layout() const;
  std::int64_t row_bytes() const { return layout().row; }
};

struct StoredRope {
  double base = 0, factor = 0, original_max_pos = 0, beta_fast = 0, beta_slow = 0;
  std::int64_t table_rows = 0;              // of the table that the op gets
  std::int32_t frequencies = AS_ROPE_FP64;  // as_rope_frequencies
  std::vector<std::int64_t> positions;
  std::vector<float> rows;          // [positions, dims]
  std::int64_t dims = AS_ROPE_DIM;  // that are rotated; 0 = the op has no table
};

struct OpCase {
  CaseOp op;
  CaseOrigin origin;
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> reals;
  std::map<std::string, StoredRope> ropes;
  // By name of the tap; absent optional tensors are left out. Outputs hold what was written.
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, StoredCache> caches;
  // Outputs of tensors that nobody knows: of these the shape alone counts.
  std::set<std::string> unknown;
  // Class of tolerances by output, in place of the op table's: what is known to round otherwise.
  std::map<std::string, std::string> classes;
};

// Copies what the op of this struct read and wrote. Host memory, paged caches.
Result<OpCase> keep_case(const CaseOp& op, const void* params, CaseOrigin origin);

// Where the tensors of a call lie. Memory is aligned to 64 bytes and filled with 0xff.
class CaseMemory {
 public:
  virtual ~CaseMemory() = default;
  // name: of the tap or rotary embedding; written: by the op.
  virtual Result<void*> allocate(std::int64_t bytes, const char* name, bool written) = 0;
};

// Memory in which a case can run, with its params struct. Outputs, padding and every byte of a
// cache that the op does not read are 0xff: NaN, and -1 in integers.
class CaseCall {
 public:
  static Result<CaseCall> make(const OpCase& kept);
  // In memory of somebody else, which must outlive the call.
  static Result<CaseCall> make(const OpCase& kept, CaseMemory& memory);

  const CaseOp& op() const { return op_; }
  void* params() { return params_.data(); }
  const void* params() const { return params_.data(); }
  const as_tensor& tensor(const as_tap_info& tap) const { return tensor_at(params(), tap.offset); }
  const as_cache& cache(const as_tap_info& tap) const { return cache_at(params(), tap.offset); }

 private:
  CaseCall() = default;
  Result<void*> allocate(std::int64_t bytes, const char* name, bool written);
  Result<void> put_tensor(const as_tap_info& tap, const StoredTensor& from, bool filled);
  Result<void> put_cache(const as_tap_info& tap, const StoredCache& from, bool filled);
  Result<void> put_rope(const as_param_info& field, const StoredRope& from);

  CaseOp op_;
  std::vector<std::uint64_t> params_;
  std::shared_ptr<CaseMemory> own_;
  CaseMemory* memory_ = nullptr;
};

// Puts what the op wrote in `call`, a layout of the same params, into the memory of `params`.
void copy_outputs(const CaseCall& call, void* params);

// A copy of a tensor in host memory, and what a case kept of one as a tensor, which points into it.
StoredTensor keep_tensor(const as_tensor& t);
as_tensor stored_view(const StoredTensor& stored);
// Rows of a cache as a U8 (records) or F32 (state) tensor [slots, bytes or width].
as_tensor stored_rows(const StoredCache& stored);
// Its rows into the slots of a cache that they were taken from.
void put_stored_rows(const StoredCache& stored, const as_cache& cache);
// What files may call a record.
std::vector<std::string> row_format_names();

}  // namespace attnscope
