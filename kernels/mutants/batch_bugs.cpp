// Wrong tables and lists of a batch: bugs of helper ops, which no step runs.
#include <algorithm>

#include "kernels/mutants/bugs.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::mutants {
namespace {

using SequenceTable = as_sequence_table_params;
using PageIndices = as_page_indices_params;
using CompactTables = as_compact_tables_params;
using PadRows = as_pad_rows_params;

std::int32_t& place(const as_tensor& t, std::int64_t i) { return *at<std::int32_t>(t, i); }
std::int32_t& place(const as_tensor& t, std::int64_t i, std::int64_t j) {
  return *at<std::int32_t>(t, i, j);
}

// ---- sequence_table -----------------------------------------------------------------------------

// Sums that have their own sequence in them already.
std::int32_t starts_are_ends(const void* params, const as_call* call, as_error* error) {
  return spoil_after<SequenceTable>(AS_OP_SEQUENCE_TABLE, params, call, error,
                                    [](const SequenceTable& p) {
                                      for (std::int64_t r = 0; r < p.query_lens.shape[0]; ++r) {
                                        place(p.cu_seqlens, r) = place(p.cu_seqlens, r + 1);
                                      }
                                      return AS_OK;
                                    });
}

std::int32_t length_before_the_step(const void* params, const as_call* call, as_error* error) {
  return spoil_after<SequenceTable>(AS_OP_SEQUENCE_TABLE, params, call, error,
                                    [](const SequenceTable& p) {
                                      for (std::int64_t r = 0; r < p.seq_lens.shape[0]; ++r) {
                                        place(p.seq_lens, r) = place(p.computed, r);
                                      }
                                      return AS_OK;
                                    });
}

std::int32_t positions_from_zero(const void* params, const as_call* call, as_error* error) {
  return spoil_after<SequenceTable>(
      AS_OP_SEQUENCE_TABLE, params, call, error, [](const SequenceTable& p) {
        for (std::int64_t t = 0; t < p.positions.shape[0]; ++t) {
          const std::int32_t of = place(p.token_to_seq, t);
          if (of >= 0) *at<std::int64_t>(p.positions, t) = t - place(p.cu_seqlens, of);
        }
        return AS_OK;
      });
}

std::int32_t padding_of_last_sequence(const void* params, const as_call* call, as_error* error) {
  return spoil_after<SequenceTable>(
      AS_OP_SEQUENCE_TABLE, params, call, error, [](const SequenceTable& p) {
        const auto last = static_cast<std::int32_t>(p.query_lens.shape[0] - 1);
        for (std::int64_t t = 0; t < p.token_to_seq.shape[0]; ++t) {
          if (place(p.token_to_seq, t) < 0) place(p.token_to_seq, t) = last;
        }
        return AS_OK;
      });
}

// Only whole blocks are counted.
std::int32_t blocks_rounded_down(const void* params, const as_call* call, as_error* error) {
  return spoil_after<SequenceTable>(
      AS_OP_SEQUENCE_TABLE, params, call, error, [](const SequenceTable& p) {
        for (std::int64_t r = 0; r < p.blocks.shape[0]; ++r) {
          for (std::int64_t c = place(p.seq_lens, r) / p.block_size; c < p.blocks.shape[1]; ++c) {
            place(p.blocks, r, c) = -1;
          }
        }
        return AS_OK;
      });
}

// ---- page_indices -------------------------------------------------------------------------------

std::int32_t full_page_is_empty(const void* params, const as_call* call, as_error* error) {
  return spoil_after<PageIndices>(
      AS_OP_PAGE_INDICES, params, call, error, [](const PageIndices& p) {
        for (std::int64_t r = 0; r < p.seq_lens.shape[0]; ++r) {
          place(p.last_page_len, r) = place(p.seq_lens, r) % p.block_size;
        }
        return AS_OK;
      });
}

std::int32_t indptr_of_next(const void* params, const as_call* call, as_error* error) {
  return spoil_after<PageIndices>(AS_OP_PAGE_INDICES, params, call, error,
                                  [](const PageIndices& p) {
                                    for (std::int64_t r = 0; r < p.table.shape[0]; ++r) {
                                      place(p.indptr, r) = place(p.indptr, r + 1);
                                    }
                                    return AS_OK;
                                  });
}

// Pages of a sequence from the second column on, the last one twice.
std::int32_t pages_one_column_late(const void* params, const as_call* call, as_error* error) {
  return spoil_after<PageIndices>(
      AS_OP_PAGE_INDICES, params, call, error, [](const PageIndices& p) {
        for (std::int64_t r = 0; r < p.table.shape[0]; ++r) {
          for (std::int64_t i = place(p.indptr, r); i + 1 < place(p.indptr, r + 1); ++i) {
            place(p.indices, i) = place(p.indices, i + 1);
          }
        }
        return AS_OK;
      });
}

std::int32_t pages_of_row_before(const void* params, const as_call* call, as_error* error) {
  return spoil_after<PageIndices>(
      AS_OP_PAGE_INDICES, params, call, error, [](const PageIndices& p) {
        for (std::int64_t r = 1; r < p.table.shape[0]; ++r) {
          const std::int64_t first = place(p.indptr, r);
          for (std::int64_t i = first; i < place(p.indptr, r + 1); ++i) {
            place(p.indices, i) = place(p.table, r - 1, i - first);
          }
        }
        return AS_OK;
      });
}

// Block 0 behind the last page.
std::int32_t padding_is_a_page(const void* params, const as_call* call, as_error* error) {
  return spoil_after<PageIndices>(
      AS_OP_PAGE_INDICES, params, call, error, [](const PageIndices& p) {
        for (std::int64_t i = place(p.indptr, p.table.shape[0]); i < p.indices.shape[0]; ++i) {
          place(p.indices, i) = 0;
        }
        return AS_OK;
      });
}

// ---- compact_tables -----------------------------------------------------------------------------

std::int32_t null_block_kept(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](CompactTables p) {
    p.null_block = -1;
    return run_cpu(AS_OP_COMPACT_TABLES, &p, call, error);
  };
  return spoil_after<CompactTables>(AS_OP_COMPACT_TABLES, params, call, error, spoil);
}

// Places in the compact row in place of those in the table.
std::int32_t columns_renumbered(const void* params, const as_call* call, as_error* error) {
  return spoil_after<CompactTables>(AS_OP_COMPACT_TABLES, params, call, error,
                                    [](const CompactTables& p) {
                                      for (std::int64_t r = 0; r < p.table.shape[0]; ++r) {
                                        for (std::int32_t k = 0; k < place(p.kept, r); ++k)
                                          place(p.columns, r, k) = k;
                                      }
                                      return AS_OK;
                                    });
}

std::int32_t holes_are_counted(const void* params, const as_call* call, as_error* error) {
  return spoil_after<CompactTables>(AS_OP_COMPACT_TABLES, params, call, error,
                                    [](const CompactTables& p) {
                                      for (std::int64_t r = 0; r < p.kept.shape[0]; ++r)
                                        place(p.kept, r) = place(p.lens, r);
                                      return AS_OK;
                                    });
}

std::int32_t first_hole_ends_row(const void* params, const as_call* call, as_error* error) {
  return spoil_after<CompactTables>(
      AS_OP_COMPACT_TABLES, params, call, error, [](const CompactTables& p) {
        for (std::int64_t r = 0; r < p.table.shape[0]; ++r) {
          std::int32_t k = 0;
          while (k < place(p.kept, r) && place(p.columns, r, k) == k) ++k;
          for (std::int64_t rest = k; rest < p.table.shape[1]; ++rest) {
            place(p.compact, r, rest) = place(p.columns, r, rest) = -1;
          }
          place(p.kept, r) = k;
        }
        return AS_OK;
      });
}

// ---- pad_rows -----------------------------------------------------------------------------------

std::int32_t padded_with_zeros(const void* params, const as_call* call, as_error* error) {
  const auto spoil = [&](PadRows p) {
    p.pad = 0;
    return run_cpu(AS_OP_PAD_ROWS, &p, call, error);
  };
  return spoil_after<PadRows>(AS_OP_PAD_ROWS, params, call, error, spoil);
}

std::int32_t row_one_short(const void* params, const as_call* call, as_error* error) {
  return spoil_after<PadRows>(AS_OP_PAD_ROWS, params, call, error, [](const PadRows& p) {
    for (std::int64_t r = 0; r < p.rows.shape[0]; ++r) {
      const std::int64_t values = place(p.starts, r + 1) - place(p.starts, r);
      if (values > 0) place(p.rows, r, values - 1) = p.pad;
    }
    return AS_OK;
  });
}

// Values stand at the end of their row, as in batches that are padded on the left.
std::int32_t padded_on_the_left(const void* params, const as_call* call, as_error* error) {
  return spoil_after<PadRows>(AS_OP_PAD_ROWS, params, call, error, [](const PadRows& p) {
    for (std::int64_t r = 0; r < p.rows.shape[0]; ++r) {
      const std::int64_t values = place(p.starts, r + 1) - place(p.starts, r);
      std::int32_t* row = at<std::int32_t>(p.rows, r);
      std::rotate(row, row + values, row + p.rows.shape[1]);
    }
    return AS_OK;
  });
}

}  // namespace

std::vector<Bug> batch_bugs() {
  return {
      {"mutant:starts_are_ends", "cu_seqlens has each sequence's end in the place of its start.",
       AS_OP_SEQUENCE_TABLE, starts_are_ends},
      {"mutant:length_before_the_step", "Lengths leave out the tokens of the step.",
       AS_OP_SEQUENCE_TABLE, length_before_the_step},
      {"mutant:positions_from_zero", "Positions count from the sequence's first token of the step.",
       AS_OP_SEQUENCE_TABLE, positions_from_zero},
      {"mutant:padding_of_last_sequence", "Tokens that pad the batch belong to its last sequence.",
       AS_OP_SEQUENCE_TABLE, padding_of_last_sequence},
      {"mutant:blocks_rounded_down", "A block that is not full is not counted.",
       AS_OP_SEQUENCE_TABLE, blocks_rounded_down},
      {"mutant:full_page_is_empty", "A last page that is full has no tokens.", AS_OP_PAGE_INDICES,
       full_page_is_empty},
      {"mutant:indptr_of_next", "indptr has where the next sequence's pages begin.",
       AS_OP_PAGE_INDICES, indptr_of_next},
      {"mutant:pages_one_column_late", "Pages begin at the second column of the table.",
       AS_OP_PAGE_INDICES, pages_one_column_late},
      {"mutant:pages_of_row_before", "A sequence has the pages of the one before it.",
       AS_OP_PAGE_INDICES, pages_of_row_before},
      {"mutant:padding_is_a_page", "Block 0 stands behind the last page.", AS_OP_PAGE_INDICES,
       padding_is_a_page},
      {"mutant:null_block_kept", "The null block stays in a compact table.", AS_OP_COMPACT_TABLES,
       null_block_kept},
      {"mutant:columns_renumbered", "Blocks of a compact table are taken for the first ones.",
       AS_OP_COMPACT_TABLES, columns_renumbered},
      {"mutant:holes_are_counted", "The count of a compact row has its holes in it.",
       AS_OP_COMPACT_TABLES, holes_are_counted},
      {"mutant:first_hole_ends_row", "A compact row ends at the first hole.", AS_OP_COMPACT_TABLES,
       first_hole_ends_row},
      {"mutant:padded_with_zeros", "Short rows end with zeros whatever is asked.", AS_OP_PAD_ROWS,
       padded_with_zeros},
      {"mutant:row_one_short", "The last value of every row is lost.", AS_OP_PAD_ROWS,
       row_one_short},
      {"mutant:padded_on_the_left", "Values stand at the end of their row.", AS_OP_PAD_ROWS,
       padded_on_the_left},
  };
}

}  // namespace attnscope::mutants
