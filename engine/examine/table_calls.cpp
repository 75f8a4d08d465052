#include "engine/examine/table_calls.h"

#include <algorithm>
#include <numeric>

#include "engine/examine/call_maker.h"
#include "kernels/params/op_ids.h"

namespace attnscope {
namespace {

// A batch: rows of its sequences, and how many of them are there before it.
struct TableBatch {
  const char* name;
  std::int32_t block_size;
  std::vector<std::int32_t> lens, computed;
  std::int64_t room;  // behind the last token, block, column or value
  std::uint64_t seed;

  std::int64_t sequences() const { return std::ssize(lens); }
  std::int64_t blocks(std::size_t r) const { return (lens[r] + block_size - 1) / block_size; }
  std::int64_t columns() const {
    std::int64_t most = 0;
    for (std::size_t r = 0; r < lens.size(); ++r) most = std::max(most, blocks(r));
    return most + room;
  }
  std::int64_t all_blocks() const {
    std::int64_t sum = 0;
    for (std::size_t r = 0; r < lens.size(); ++r) sum += blocks(r);
    return sum;
  }
};

const std::vector<TableBatch>& table_batches(bool page_ends) {
  static const std::vector<TableBatch> kPlain = {{"one sequence", 16, {9}, {0}, 0, 91},
                                                 {"two sequences", 5, {133, 41}, {120, 0}, 3, 92},
                                                 {"six sequences, some without rows",
                                                  64,
                                                  {0, 700, 129, 0, 4, 0},
                                                  {0, 699, 0, 0, 1, 0},
                                                  7,
                                                  93}};
  static const std::vector<TableBatch> kEnds = {
      {"a full block", 64, {64}, {0}, 0, 94},
      {"a row behind it", 64, {65, 63}, {64, 62}, 1, 95},
      {"blocks of one row", 1, {1, 7, 2}, {0, 6, 0}, 2, 96}};
  return page_ends ? kEnds : kPlain;
}

void put_all(StoredTensor& t, const std::vector<std::int32_t>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    CallMaker::put(t, static_cast<std::int64_t>(i), values[i]);
  }
}

// Blocks of every sequence, each block once, and -1 behind them.
void put_table(CallMaker& make, StoredTensor& table, const TableBatch& batch) {
  std::vector<std::int32_t> ids(to_size(batch.all_blocks()));
  std::iota(ids.begin(), ids.end(), 1);
  for (std::size_t i = ids.size(); i > 1; --i) {
    std::swap(ids[i - 1], ids[to_size(make.below(static_cast<std::int64_t>(i)))]);
  }
  const std::int64_t columns = table.shape[1];
  std::size_t next = 0;
  for (std::int64_t r = 0; r < batch.sequences(); ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const bool held = c < batch.blocks(to_size(r));
      CallMaker::put(table, r * columns + c, held ? ids[next++] : -1);
    }
  }
}

OpCase sequence_call(const CaseOp& op, const TableBatch& batch) {
  CallMaker make(op, batch.name, batch.seed);
  const std::int64_t sequences = batch.sequences();
  std::vector<std::int32_t> query;
  for (std::size_t r = 0; r < batch.lens.size(); ++r) {
    query.push_back(batch.lens[r] - batch.computed[r]);
  }
  const std::int64_t tokens = std::accumulate(query.begin(), query.end(), std::int64_t{0});
  put_all(make.add("query_lens", AS_I32, {sequences}), query);
  put_all(make.add("computed", AS_I32, {sequences}), batch.computed);
  make.add("cu_seqlens", AS_I32, {sequences + 1});
  make.add("seq_lens", AS_I32, {sequences});
  make.add("blocks", AS_I32, {sequences, batch.columns()});
  make.add("token_to_seq", AS_I32, {tokens + batch.room});
  make.add("positions", AS_I64, {tokens + batch.room});
  make.call().integers["block_size"] = batch.block_size;
  return std::move(make.call());
}

OpCase page_call(const CaseOp& op, const TableBatch& batch) {
  CallMaker make(op, batch.name, batch.seed);
  const std::int64_t sequences = batch.sequences();
  put_table(make, make.add("table", AS_I32, {sequences, batch.columns()}), batch);
  put_all(make.add("seq_lens", AS_I32, {sequences}), batch.lens);
  make.add("indptr", AS_I32, {sequences + 1});
  make.add("indices", AS_I32, {batch.all_blocks() + batch.room});
  make.add("last_page_len", AS_I32, {sequences});
  make.call().integers["block_size"] = batch.block_size;
  return std::move(make.call());
}

OpCase compact_call(const CaseOp& op, const TableBatch& batch) {
  CallMaker make(op, batch.name, batch.seed);
  const std::int64_t sequences = batch.sequences(), columns = batch.columns();
  put_table(make, make.add("table", AS_I32, {sequences, columns}), batch);
  StoredTensor& lens = make.add("lens", AS_I32, {sequences});
  for (std::int64_t r = 0; r < sequences; ++r) {
    CallMaker::put(lens, r, static_cast<std::int32_t>(batch.blocks(to_size(r))));
  }
  make.add("compact", AS_I32, {sequences, columns});
  make.add("columns", AS_I32, {sequences, columns});
  make.add("kept", AS_I32, {sequences});
  make.call().integers["null_block"] = 0;
  return std::move(make.call());
}

OpCase pad_call(const CaseOp& op, const TableBatch& batch) {
  CallMaker make(op, batch.name, batch.seed);
  const std::int64_t sequences = batch.sequences(), values = batch.all_blocks();
  StoredTensor& list = make.add("values", AS_I32, {values + batch.room});
  for (std::int64_t i = 0; i < values + batch.room; ++i) {
    CallMaker::put(list, i, static_cast<std::int32_t>(make.below(1000)));
  }
  StoredTensor& starts = make.add("starts", AS_I32, {sequences + 1});
  std::int64_t start = 0;
  for (std::int64_t r = 0; r <= sequences; ++r) {
    CallMaker::put(starts, r, static_cast<std::int32_t>(start));
    if (r < sequences) start += batch.blocks(to_size(r));
  }
  make.add("rows", AS_I32, {sequences, batch.columns()});
  make.call().integers["pad"] = -1;
  return std::move(make.call());
}

}  // namespace

bool has_table_calls(const CaseOp& op) {
  return op.id == AS_OP_SEQUENCE_TABLE || op.id == AS_OP_PAGE_INDICES ||
         op.id == AS_OP_COMPACT_TABLES || op.id == AS_OP_PAD_ROWS;
}

std::vector<OpCase> table_calls(const CaseOp& op, bool page_ends) {
  std::vector<OpCase> calls;
  for (const TableBatch& batch : table_batches(page_ends)) {
    if (op.id == AS_OP_SEQUENCE_TABLE) {
      calls.push_back(sequence_call(op, batch));
    } else if (op.id == AS_OP_PAGE_INDICES) {
      calls.push_back(page_call(op, batch));
    } else if (op.id == AS_OP_COMPACT_TABLES && !page_ends) {
      calls.push_back(compact_call(op, batch));
    } else if (op.id == AS_OP_PAD_ROWS && !page_ends) {
      calls.push_back(pad_call(op, batch));
    }
  }
  return calls;
}

}  // namespace attnscope
