// Slots of new rows, and the slot lists that attention reads.
#include <algorithm>
#include <string>

#include "reference/ops.h"
#include "reference/slots.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

// Slots of the entries that the tokens of one ratio emit, -1 where a token emits none.
void entry_slots(const as_slot_mapping_params& p, const Integers& groups, const Integers& tables,
                 const as_tensor& out, const char* name, std::int64_t ratio) {
  const Integers positions(p.positions, "positions", {kAny});
  const std::int64_t tokens = positions.size(0);
  const Integers token_to_req(p.token_to_req, "token_to_req", {tokens});
  const Integers slots(out, name, {tokens});
  if (p.mla_group < 0 || p.mla_group >= groups.size(0)) {
    throw BadInput(std::string(name) + " is asked for, but mla_group is " +
                   std::to_string(p.mla_group) + "; allowed: 0 to " +
                   std::to_string(groups.size(0) - 1));
  }
  const std::int64_t block_size = groups.get(p.mla_group, 0);
  if (block_size % ratio != 0) {
    throw BadInput("block size " + std::to_string(block_size) + " of group " +
                   std::to_string(p.mla_group) + " is not a multiple of " + std::to_string(ratio));
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t position = positions.get(t);
    const bool emits = token_to_req.get(t) >= 0 && (position + 1) % ratio == 0;
    slots.set(emits ? slot_of(tables, p.mla_group, token_to_req.get(t), position / ratio,
                              block_size / ratio, t)
                    : -1,
              t);
  }
}

}  // namespace

void slot_mapping(const as_slot_mapping_params& p, const Precision&) {
  const Integers groups(p.groups, "groups", {kAny, 2});
  const Integers tables(p.tables, "tables", {groups.size(0), kAny, kAny});
  const Integers positions(p.positions, "positions", {kAny});
  const std::int64_t tokens = positions.size(0);
  const Integers token_to_req(p.token_to_req, "token_to_req", {tokens});
  const Integers slots(p.slots, "slots", {groups.size(0), tokens});
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t request = token_to_req.get(t);
    if (request >= 0) check_index(request, tables.size(1), "request", t);
    for (std::int64_t g = 0; g < groups.size(0); ++g) {
      const std::int64_t only_first =
          as_first_with_rows(static_cast<std::int32_t>(groups.get(g, 1)));
      const bool no_row = request < 0 || (only_first >= 0 && positions.get(t) >= only_first);
      slots.set(no_row ? -1 : slot_of(tables, g, request, positions.get(t), groups.get(g, 0), t), g,
                t);
    }
  }
  if (present(p.c4_slots)) entry_slots(p, groups, tables, p.c4_slots, "c4_slots", 4);
  if (present(p.c128_slots)) entry_slots(p, groups, tables, p.c128_slots, "c128_slots", 128);
  if (present(p.c4_lens)) {
    const Integers lens(p.c4_lens, "c4_lens", {tokens});
    for (std::int64_t t = 0; t < tokens; ++t) {
      lens.set(token_to_req.get(t) < 0 ? 0 : (positions.get(t) + 1) / 4, t);
    }
  }
  if (present(p.seen_lens)) {
    const Integers lens(p.seen_lens, "seen_lens", {tokens});
    for (std::int64_t t = 0; t < tokens; ++t) {
      lens.set(token_to_req.get(t) < 0 ? 0 : positions.get(t) + 1, t);
    }
  }
}

void swa_index(const as_swa_index_params& p, const Precision&) {
  if (p.window <= 0) {
    throw BadInput("window is " + std::to_string(p.window) + "; it must be positive");
  }
  const Integers tables(p.tables, "tables", {kAny, kAny, kAny});
  const Integers seq_lens(p.seq_lens, "seq_lens", {tables.size(1)});
  const Integers query_start_loc(p.query_start_loc, "query_start_loc", {tables.size(1) + 1});
  const Integers token_to_req(p.token_to_req, "token_to_req", {kAny});
  const std::int64_t tokens = token_to_req.size(0);
  const Integers indices(p.indices, "indices", {tables.size(0), tokens, p.window});
  const Integers lens(p.lens, "lens", {tokens});
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t r = token_to_req.get(t);
    std::int64_t start = 0;
    std::int64_t len = 0;
    if (r >= 0) {
      check_index(r, seq_lens.size(0), "request", t);
      const std::int64_t query_len = query_start_loc.get(r + 1) - query_start_loc.get(r);
      const std::int64_t position = seq_lens.get(r) - query_len + (t - query_start_loc.get(r));
      if (position < 0) {
        throw BadInput("token " + std::to_string(t) + " of request " + std::to_string(r) +
                       " comes out at position " + std::to_string(position) +
                       "; query_start_loc and seq_lens do not fit together");
      }
      start = std::max<std::int64_t>(position - p.window + 1, 0);
      len = position + 1 - start;
    }
    lens.set(len, t);
    for (std::int64_t s = 0; s < tables.size(0); ++s) {
      for (std::int64_t k = 0; k < p.window; ++k) {
        indices.set(k < len ? slot_of(tables, s, r, start + k, p.block_size, t) : -1, s, t, k);
      }
    }
  }
}

void c128_index(const as_c128_index_params& p, const Precision&) {
  const Integers table(as_one_group(p.table), "table", {1, kAny, kAny});
  const Integers positions(p.positions, "positions", {kAny});
  const std::int64_t tokens = positions.size(0);
  const Integers token_to_req(p.token_to_req, "token_to_req", {tokens});
  const Integers indices(p.indices, "indices", {tokens, kAny});
  const Integers lens(p.lens, "lens", {tokens});
  if (p.ratio <= 0) throw BadInput("ratio is " + std::to_string(p.ratio) + "; allowed: 128");
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t r = token_to_req.get(t);
    if (r >= 0) check_index(r, table.size(1), "request", t);
    const std::int64_t n = r < 0 ? 0 : (positions.get(t) + 1) / p.ratio;
    if (n > indices.size(1)) {
      throw BadInput("token " + std::to_string(t) + " sees " + std::to_string(n) +
                     " entries but indices has " + std::to_string(indices.size(1)) +
                     " columns; make it as wide as as_c128_index_width() says");
    }
    lens.set(n, t);
    for (std::int64_t c = 0; c < indices.size(1); ++c) {
      indices.set(c < n ? slot_of(table, 0, r, c, p.rows_per_block, t) : -1, t, c);
    }
  }
}

// Token by token: one whose request or chunk is not that of the token before begins a sequence.
void cross_batch(const as_cross_batch_params& p, const Precision&) {
  const Integers positions(p.positions, "positions", {kAny});
  const std::int64_t tokens = positions.size(0);
  const Integers token_to_req(p.token_to_req, "token_to_req", {tokens});
  const Integers source_lens(p.source_lens, "source_lens", {kAny});
  const Integers slots(p.slots, "slots", {kAny, tokens});
  check_index(p.group, slots.size(0), "group of slots", 0);
  const Integers requests[2] = {{p.source_to_req, "source_to_req", {tokens}},
                                {p.target_to_req, "target_to_req", {tokens}}};
  const Integers places[2] = {{p.source_slots, "source_slots", {tokens}},
                              {p.target_slots, "target_slots", {tokens}}};
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int side = 0; side < 2; ++side) {
      requests[side].set(-1, t);
      places[side].set(-1, t);
    }
    const std::int64_t r = token_to_req.get(t);
    if (r < 0) continue;
    check_index(r, source_lens.size(0), "request", t);
    const int side = positions.get(t) >= source_lens.get(r) ? 1 : 0;
    requests[side].set(r, t);
    places[side].set(slots.get(p.group, t), t);
  }
}

void local_batch(const as_local_batch_params& p, const Precision&) {
  if (p.chunk <= 0 || p.block_size <= 0 || p.chunk % p.block_size != 0) {
    throw BadInput("chunk is " + std::to_string(p.chunk) + ", block_size " +
                   std::to_string(p.block_size) + "; a chunk is a multiple of the block");
  }
  const Integers tables(p.tables, "tables", {kAny, kAny, kAny});
  const std::int64_t groups = tables.size(0), blocks = p.chunk / p.block_size;
  const Integers query_start_loc(p.query_start_loc, "query_start_loc", {tables.size(1) + 1});
  const Integers seq_lens(p.seq_lens, "seq_lens", {tables.size(1)});
  const Integers token_to_req(p.token_to_req, "token_to_req", {kAny});
  const std::int64_t tokens = token_to_req.size(0);
  const Integers token_to_seq(p.token_to_seq, "token_to_seq", {tokens});
  const Integers local_positions(p.local_positions, "local_positions", {tokens});
  const Integers starts(p.local_query_start_loc, "local_query_start_loc", {tokens + 1});
  const Integers lens(p.local_seq_lens, "local_seq_lens", {tokens});
  const Integers local_tables(p.local_tables, "local_tables", {groups, tokens, blocks});
  for (std::int64_t l = 0; l <= tokens; ++l) {
    starts.set(query_start_loc.get(tables.size(1)), l);
    for (std::int64_t s = 0; l < tokens && s < groups; ++s) {
      for (std::int64_t c = 0; c < blocks; ++c) local_tables.set(-1, s, l, c);
    }
    if (l < tokens) lens.set(0, l);
  }
  std::int64_t sequence = -1, request = -1, first = 0;  // first position of the chunk
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t r = token_to_req.get(t);
    if (r < 0) {
      token_to_seq.set(-1, t);
      local_positions.set(0, t);
      continue;
    }
    check_index(r, tables.size(1), "request", t);
    const std::int64_t position = seq_lens.get(r) - query_start_loc.get(r + 1) + t;
    if (position < 0) {
      throw BadInput("token " + std::to_string(t) + " comes out at position " +
                     std::to_string(position) +
                     "; query_start_loc and seq_lens do not fit together");
    }
    const bool begins = r != request || position >= first + p.chunk;
    if (begins) {
      first = position;
      while (first % p.chunk != 0) --first;
      request = r;
      starts.set(t, ++sequence);
    }
    token_to_seq.set(sequence, t);
    local_positions.set(position - first, t);
    if (!begins) continue;
    std::int64_t rows = 0;
    for (; rows < p.chunk && first + rows < seq_lens.get(r); ++rows) {
      if (rows % p.block_size != 0) continue;
      const std::int64_t column = (first + rows) / p.block_size;
      check_index(column, tables.size(2), "block table column", t);
      for (std::int64_t s = 0; s < groups; ++s) {
        local_tables.set(tables.get(s, r, column), s, sequence, rows / p.block_size);
      }
    }
    lens.set(rows, sequence);
  }
}

void topk_to_slots(const as_topk_to_slots_params& p, const Precision&) {
  const Integers indices(p.indices, "indices", {kAny, kAny});
  const std::int64_t tokens = indices.size(0);
  const std::int64_t k = indices.size(1);
  const Integers table(as_one_group(p.table), "table", {1, kAny, kAny});
  const Integers token_to_req(p.token_to_req, "token_to_req", {tokens});
  const Integers slots(p.slots, "slots", {tokens, k});
  const Integers lens(p.lens, "lens", {tokens});
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t r = token_to_req.get(t);
    if (r >= 0) check_index(r, table.size(1), "request", t);
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t entry = indices.get(t, i);
      const bool valid = r >= 0 && entry >= 0;
      slots.set(valid ? slot_of(table, 0, r, entry, p.rows_per_block, t) : -1, t, i);
      n += valid;
    }
    lens.set(n, t);
  }
}

}  // namespace attnscope::reference
