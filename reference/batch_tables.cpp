// Tables and lists of a batch, straight from what they are to hold.
#include <string>
#include <vector>

#include "reference/ops.h"
#include "reference/tensors.h"

namespace attnscope::reference {
namespace {

// Blocks that hold so many rows.
std::int64_t blocks_for(std::int64_t rows, std::int64_t block_size) {
  return rows / block_size + (rows % block_size != 0 ? 1 : 0);
}

void check_block_size(std::int32_t block_size) {
  if (block_size < 1) {
    throw BadInput("block_size is " + std::to_string(block_size) + "; it is at least 1");
  }
}

// Writes all of them, and `rest` behind them.
void write_list(const Integers& out, const std::vector<std::int64_t>& values, std::int64_t rest) {
  const auto count = static_cast<std::int64_t>(values.size());
  for (std::int64_t i = 0; i < count; ++i) check_index(i, out.size(0), "place in a list", i);
  for (std::int64_t i = 0; i < out.size(0); ++i) {
    out.set(i < count ? values[static_cast<std::size_t>(i)] : rest, i);
  }
}

void write_row(const Integers& out, std::int64_t row, const std::vector<std::int64_t>& values,
               std::int64_t rest) {
  const auto count = static_cast<std::int64_t>(values.size());
  for (std::int64_t i = 0; i < count; ++i) check_index(i, out.size(1), "column", row);
  for (std::int64_t i = 0; i < out.size(1); ++i) {
    out.set(i < count ? values[static_cast<std::size_t>(i)] : rest, row, i);
  }
}

}  // namespace

void sequence_table(const as_sequence_table_params& p, const Precision&) {
  check_block_size(p.block_size);
  const Integers query(p.query_lens, "query_lens", {kAny});
  const std::int64_t sequences = query.size(0);
  const Integers computed(p.computed, "computed", {sequences});
  const Integers lengths(p.seq_lens, "seq_lens", {sequences});
  const Integers blocks(p.blocks, "blocks", {sequences, kAny});
  std::vector<std::int64_t> starts{0}, owners, positions;
  for (std::int64_t r = 0; r < sequences; ++r) {
    const std::int64_t length = computed.get(r) + query.get(r);
    for (std::int64_t position = computed.get(r); position < length; ++position) {
      owners.push_back(r);
      positions.push_back(position);
    }
    starts.push_back(static_cast<std::int64_t>(owners.size()));
    lengths.set(length, r);
    std::vector<std::int64_t> held;
    for (std::int64_t c = 0; c < blocks_for(length, p.block_size); ++c) held.push_back(c);
    write_row(blocks, r, held, -1);
  }
  write_list(Integers(p.cu_seqlens, "cu_seqlens", {sequences + 1}), starts, 0);
  write_list(Integers(p.token_to_seq, "token_to_seq", {kAny}), owners, -1);
  write_list(Integers(p.positions, "positions", {p.token_to_seq.shape[0]}), positions, 0);
}

void page_indices(const as_page_indices_params& p, const Precision&) {
  check_block_size(p.block_size);
  const Integers table(p.table, "table", {kAny, kAny});
  const std::int64_t sequences = table.size(0);
  const Integers lengths(p.seq_lens, "seq_lens", {sequences});
  const Integers last(p.last_page_len, "last_page_len", {sequences});
  std::vector<std::int64_t> starts{0}, pages;
  for (std::int64_t r = 0; r < sequences; ++r) {
    const std::int64_t count = blocks_for(lengths.get(r), p.block_size);
    for (std::int64_t c = 0; c < count; ++c) {
      check_index(c, table.size(1), "column of table", r);
      pages.push_back(table.get(r, c));
    }
    starts.push_back(static_cast<std::int64_t>(pages.size()));
    // What the pages before the last one do not hold.
    last.set(count == 0 ? 0 : lengths.get(r) - (count - 1) * p.block_size, r);
  }
  write_list(Integers(p.indptr, "indptr", {sequences + 1}), starts, 0);
  write_list(Integers(p.indices, "indices", {kAny}), pages, -1);
}

void compact_tables(const as_compact_tables_params& p, const Precision&) {
  const Integers table(p.table, "table", {kAny, kAny});
  const std::int64_t rows = table.size(0), columns = table.size(1);
  const Integers lens(p.lens, "lens", {rows});
  const Integers compact(p.compact, "compact", {rows, columns});
  const Integers from(p.columns, "columns", {rows, columns});
  const Integers kept(p.kept, "kept", {rows});
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<std::int64_t> blocks, places;
    for (std::int64_t c = 0; c < lens.get(r); ++c) {
      check_index(c, columns, "column of table", r);
      const std::int64_t block = table.get(r, c);
      if (block >= 0 && block != p.null_block) {
        blocks.push_back(block);
        places.push_back(c);
      }
    }
    write_row(compact, r, blocks, -1);
    write_row(from, r, places, -1);
    kept.set(static_cast<std::int64_t>(blocks.size()), r);
  }
}

void pad_rows(const as_pad_rows_params& p, const Precision&) {
  const Integers values(p.values, "values", {kAny});
  const Integers rows(p.rows, "rows", {kAny, kAny});
  const Integers starts(p.starts, "starts", {rows.size(0) + 1});
  for (std::int64_t r = 0; r < rows.size(0); ++r) {
    std::vector<std::int64_t> own;
    for (std::int64_t i = starts.get(r); i < starts.get(r + 1); ++i) {
      check_index(i, values.size(0), "value", r);
      own.push_back(values.get(i));
    }
    write_row(rows, r, own, p.pad);
  }
}

}  // namespace attnscope::reference
