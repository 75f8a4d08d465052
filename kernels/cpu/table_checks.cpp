// Checks of the helper ops that make tables and lists of a batch.
#include "kernels/cpu/helper_ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Longs = long long;

// Blocks of a sequence; refused where a row of the table has not as many.
bool check_blocks(std::int64_t r, std::int64_t length, std::int32_t block_size,
                  std::int64_t columns, std::int64_t* blocks, Check& check) {
  *blocks = (length + block_size - 1) / block_size;
  if (*blocks <= columns) return true;
  return check.fail("sequence %lld has %lld rows, which %lld columns of %d rows do not hold",
                    static_cast<Longs>(r), static_cast<Longs>(length), static_cast<Longs>(columns),
                    block_size);
}

// seq_lens[r], which must not be negative.
bool check_length(const char* name, const as_tensor& lens, std::int64_t r, std::int64_t* length,
                  Check& check) {
  *length = *at<std::int32_t>(lens, r);
  if (*length >= 0) return true;
  return check.fail("%s[%lld] is %lld; it counts and starts at 0", name, static_cast<Longs>(r),
                    static_cast<Longs>(*length));
}

bool check_sequences(const as_sequence_table_params& p, Check& check) {
  std::int64_t tokens = 0;
  for (std::int64_t r = 0; r < p.query_lens.shape[0]; ++r) {
    std::int64_t query = 0, computed = 0, blocks = 0;
    if (!check_length("query_lens", p.query_lens, r, &query, check) ||
        !check_length("computed", p.computed, r, &computed, check) ||
        !check.range("seq_lens", computed + query, 0, INT32_MAX) ||
        !check_blocks(r, computed + query, p.block_size, p.blocks.shape[1], &blocks, check)) {
      return false;
    }
    tokens += query;
  }
  if (tokens <= p.token_to_seq.shape[0]) return true;
  return check.fail("query_lens add up to %lld tokens; token_to_seq holds %lld",
                    static_cast<Longs>(tokens), static_cast<Longs>(p.token_to_seq.shape[0]));
}

bool check_pages(const as_page_indices_params& p, Check& check) {
  std::int64_t pages = 0;
  for (std::int64_t r = 0; r < p.seq_lens.shape[0]; ++r) {
    std::int64_t length = 0, blocks = 0;
    if (!check_length("seq_lens", p.seq_lens, r, &length, check) ||
        !check_blocks(r, length, p.block_size, p.table.shape[1], &blocks, check)) {
      return false;
    }
    pages += blocks;
  }
  if (pages <= p.indices.shape[0]) return true;
  return check.fail("the sequences have %lld blocks; indices holds %lld", static_cast<Longs>(pages),
                    static_cast<Longs>(p.indices.shape[0]));
}

bool check_starts(const as_pad_rows_params& p, Check& check) {
  const std::int64_t rows = p.rows.shape[0];
  std::int64_t before = 0;
  for (std::int64_t r = 0; r <= rows; ++r) {
    const std::int64_t start = *at<std::int32_t>(p.starts, r);
    if (start < before || start > p.values.shape[0] || (r == 0 && start != 0)) {
      return check.fail("starts[%lld] is %lld; they ascend from 0 to at most %lld",
                        static_cast<Longs>(r), static_cast<Longs>(start),
                        static_cast<Longs>(p.values.shape[0]));
    }
    if (r > 0 && start - before > p.rows.shape[1]) {
      return check.fail("row %lld has %lld values; rows has %lld columns",
                        static_cast<Longs>(r - 1), static_cast<Longs>(start - before),
                        static_cast<Longs>(p.rows.shape[1]));
    }
    before = start;
  }
  return true;
}

}  // namespace

bool check_params(const as_sequence_table_params& p, bool values, Check& check) {
  if (!check.range("block_size", p.block_size, 1, INT32_MAX) ||
      !check.tensor("query_lens", p.query_lens, AS_I32, {kAny}) ||
      !check.tensor("token_to_seq", p.token_to_seq, AS_I32, {kAny})) {
    return false;
  }
  const std::int64_t sequences = p.query_lens.shape[0];
  return check.tensor("computed", p.computed, AS_I32, {sequences}) &&
         check.tensor("cu_seqlens", p.cu_seqlens, AS_I32, {sequences + 1}) &&
         check.tensor("seq_lens", p.seq_lens, AS_I32, {sequences}) &&
         check.tensor("blocks", p.blocks, AS_I32, {sequences, kAny}) &&
         check.tensor("positions", p.positions, AS_I64, {p.token_to_seq.shape[0]}) &&
         (!values || check_sequences(p, check));
}

bool check_params(const as_page_indices_params& p, bool values, Check& check) {
  if (!check.range("block_size", p.block_size, 1, INT32_MAX) ||
      !check.tensor("table", p.table, AS_I32, {kAny, kAny})) {
    return false;
  }
  const std::int64_t sequences = p.table.shape[0];
  return check.tensor("seq_lens", p.seq_lens, AS_I32, {sequences}) &&
         check.tensor("indptr", p.indptr, AS_I32, {sequences + 1}) &&
         check.tensor("indices", p.indices, AS_I32, {kAny}) &&
         check.tensor("last_page_len", p.last_page_len, AS_I32, {sequences}) &&
         (!values || check_pages(p, check));
}

bool check_params(const as_compact_tables_params& p, bool values, Check& check) {
  if (!check.tensor("table", p.table, AS_I32, {kAny, kAny})) return false;
  const std::int64_t rows = p.table.shape[0], columns = p.table.shape[1];
  if (!check.tensor("lens", p.lens, AS_I32, {rows}) ||
      !check.tensor("compact", p.compact, AS_I32, {rows, columns}) ||
      !check.tensor("columns", p.columns, AS_I32, {rows, columns}) ||
      !check.tensor("kept", p.kept, AS_I32, {rows})) {
    return false;
  }
  for (std::int64_t r = 0; values && r < rows; ++r) {
    const std::int64_t length = *at<std::int32_t>(p.lens, r);
    if (length >= 0 && length <= columns) continue;
    return check.fail("lens[%lld] is %lld; a row of table has %lld entries", static_cast<Longs>(r),
                      static_cast<Longs>(length), static_cast<Longs>(columns));
  }
  return true;
}

bool check_params(const as_pad_rows_params& p, bool values, Check& check) {
  return check.tensor("values", p.values, AS_I32, {kAny}) &&
         check.tensor("rows", p.rows, AS_I32, {kAny, kAny}) &&
         check.tensor("starts", p.starts, AS_I32, {p.rows.shape[0] + 1}) &&
         (!values || check_starts(p, check));
}

}  // namespace attnscope::cpu
