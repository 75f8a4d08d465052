// Cases of the helper ops that make tables of a batch, and of the one that converts rows: kept,
// written, read and run again in the CPU lane, the reference and each planted bug, which the case
// names.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "app/reports/case_check.h"
#include "app/wiring/case_lane.h"
#include "app/wiring/wiring.h"
#include "engine/opcase/case_file.h"
#include "engine/opcase/case_run.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/mutants/mutants.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace table_cases_test {

using Ints = std::vector<std::int32_t>;

// Three sequences and one that pads the batch, in blocks of 4: tokens 5, 1 and 8 after 4, 7 and 0.
class TableCases : public testing::Test {
 protected:
  static as_tensor ints(Ints& values, std::initializer_list<std::int64_t> shape) {
    return make_tensor(values.data(), shape);
  }
  template <class Params>
  static Params head() {
    Params p{};
    p.head = {sizeof(Params), AS_PARAMS_VERSION};
    return p;
  }

  OpCase sequence_table() {
    auto p = head<as_sequence_table_params>();
    p.query_lens = ints(query_, {4});
    p.computed = ints(computed_, {4});
    p.cu_seqlens = ints(starts_, {5});
    p.seq_lens = ints(lens_, {4});
    p.blocks = ints(blocks_, {4, 3});
    p.token_to_seq = ints(owners_, {16});
    p.positions = make_tensor(positions_.data(), {16});
    p.block_size = 4;
    return keep(AS_OP_SEQUENCE_TABLE, &p);
  }
  OpCase page_indices() {
    auto p = head<as_page_indices_params>();
    p.table = ints(table_, {4, 3});
    p.seq_lens = ints(known_lens_, {4});
    p.indptr = ints(starts_, {5});
    p.indices = ints(pages_, {8});
    p.last_page_len = ints(lens_, {4});
    p.block_size = 4;
    return keep(AS_OP_PAGE_INDICES, &p);
  }
  OpCase compact_tables() {
    auto p = head<as_compact_tables_params>();
    p.table = ints(holes_, {2, 6});
    p.lens = ints(held_, {2});
    p.compact = ints(blocks_, {2, 6});
    p.columns = ints(columns_, {2, 6});
    p.kept = ints(counts_, {2});
    return keep(AS_OP_COMPACT_TABLES, &p);
  }
  OpCase pad_rows() {
    auto p = head<as_pad_rows_params>();
    p.values = ints(known_pages_, {6});
    p.starts = ints(known_starts_, {5});
    p.rows = ints(blocks_, {4, 3});
    p.pad = -1;
    return keep(AS_OP_PAD_ROWS, &p);
  }

  // Rows of two heads of 8 numbers, bf16 and e4m3, into int8 pages of another size.
  OpCase convert_rows(std::int32_t from) {
    constexpr std::int64_t kWidth = 16;
    const as_row_layout source = as_row_layout_of(from, kWidth, 2, 4);
    const as_row_layout target = as_row_layout_of(AS_RECORD_INT8_TOKEN_HEAD, kWidth, 2, 2);
    from_bytes_.assign(static_cast<std::size_t>(2 * source.page), 0);
    to_bytes_.assign(static_cast<std::size_t>(4 * target.page), 0);
    auto p = head<as_convert_rows_params>();
    const auto set = [](as_cache& cache, const as_row_layout& l, std::vector<std::uint8_t>& bytes) {
      cache.data =
          make_tensor(bytes.data(), {static_cast<std::int64_t>(bytes.size()) / l.page, l.page});
      cache.data.reserved = 2;
      cache.record = l.format->record;
      cache.rows_per_block = static_cast<std::int32_t>(l.rows);
      cache.width = kWidth;
    };
    set(p.from, source, from_bytes_);
    set(p.to, target, to_bytes_);
    const cpu::KvRows rows(p.from, no_tensor());
    for (std::int64_t slot = 0; slot < 8; ++slot) {
      for (std::int64_t h = 0; h < 2; ++h) {
        std::uint16_t values[8];
        for (int i = 0; i < 8; ++i) {
          values[i] = cpu::float_to_bf16(static_cast<float>((slot + 3) * (i - 2) + 5 * h) / 4);
        }
        rows.put(slot, h, values, 8);
      }
    }
    p.slots = make_tensor(slots_.data(), {4});
    return keep(AS_OP_CONVERT_ROWS, &p);
  }

  OpCase keep(as_op_id id, const void* params) {
    as_error error{};
    EXPECT_EQ(cpu::lane()->ops[id](params, nullptr, &error), AS_OK) << error.message;
    auto kept = keep_case(*find_case_op(id), params, {"a test", "cpu"});
    EXPECT_TRUE(kept);
    const auto file = std::filesystem::temp_directory_path() /
                      ("attnscope-table-case-" + std::to_string(::getpid()) + ".json");
    EXPECT_TRUE(write_case(*kept, file.string()));
    auto again = read_case(file.string());
    EXPECT_TRUE(again) << (again ? "" : again.error().text());
    std::filesystem::remove(file);
    std::filesystem::remove(std::filesystem::path(file).replace_extension(".safetensors"));
    return std::move(*again);
  }

  // Whether all of its outputs are what the case holds.
  bool equal(const OpCase& kept, const std::string& name) const {
    static const Tolerances tolerances = *Tolerances::load();
    auto lane = find_case_lane(lanes_, name, kept.op);
    if (!lane) {
      ADD_FAILURE() << lane.error().text();
      return false;
    }
    auto run = run_case(kept, *lane, case_options(lanes_, kept.op, tolerances, nullptr));
    EXPECT_TRUE(run) << name << ": " << (run ? "" : run.error().text());
    return run && std::ranges::all_of(
                      run->taps, [](const CaseTap& tap) { return tap.verdict == Verdict::kEqual; });
  }
  void judge(const OpCase& kept) const {
    EXPECT_TRUE(equal(kept, "cpu")) << kept.op.name;
    EXPECT_TRUE(equal(kept, "ref.sim")) << kept.op.name;
    int planted = 0;
    for (const Lane& mutant : mutants::helpers()) {
      if (mutant.ops[kept.op.id] == nullptr) continue;
      ++planted;
      EXPECT_FALSE(equal(kept, mutant.name)) << mutant.name;
    }
    EXPECT_GE(planted, 3) << kept.op.name;
  }

  const LaneRegistry lanes_ = all_lanes();
  Ints query_{5, 1, 8, 0}, computed_{4, 7, 0, 0}, known_lens_{8, 8, 7, 0};
  Ints table_{3, 4, -1, 9, 1, -1, 7, 8, 2, -1, -1, -1};
  Ints holes_{0, 0, 41, 0, 57, 9, 3, 0, 5, -1, 6, 7}, held_{5, 6};
  Ints known_starts_{0, 2, 4, 6, 6}, known_pages_{3, 4, 9, 1, 7, 8};
  Ints starts_ = Ints(5), lens_ = Ints(4), blocks_ = Ints(12), columns_ = Ints(12),
       counts_ = Ints(2), owners_ = Ints(16), pages_ = Ints(8);
  std::vector<std::int64_t> positions_ = std::vector<std::int64_t>(16);
  std::vector<std::int64_t> slots_{6, 0, -1, 3};
  std::vector<std::uint8_t> from_bytes_, to_bytes_;
};

TEST_F(TableCases, OfSequencesNameTheirBugs) { judge(sequence_table()); }
TEST_F(TableCases, OfPagesNameTheirBugs) { judge(page_indices()); }
TEST_F(TableCases, OfCompactTablesNameTheirBugs) { judge(compact_tables()); }
TEST_F(TableCases, OfPaddedRowsNameTheirBugs) { judge(pad_rows()); }
TEST_F(TableCases, OfConvertedRowsNameTheirBugs) {
  judge(convert_rows(AS_RECORD_FP8_TOKEN_HEAD));
  const OpCase of_bf16 = convert_rows(AS_RECORD_BF16);
  EXPECT_TRUE(equal(of_bf16, "cpu"));
  EXPECT_TRUE(equal(of_bf16, "ref.sim"));
  EXPECT_FALSE(equal(of_bf16, "mutant:converted_without_zero"));
}

}  // namespace table_cases_test
}  // namespace attnscope
