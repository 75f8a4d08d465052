// Cases from dumps in other layouts: a kept case is taken apart into the tensors of another engine,
// put together again by a map, and must give the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "app/wiring/case_lane.h"
#include "app/wiring/wiring.h"
#include "engine/opcase/case_file.h"
#include "engine/opcase/import_case.h"
#include "engine/opcase/import_rows.h"
#include "engine/tensorfile/tensor_writer.h"
#include "engine/trace/compare.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace case_import_test {

class CaseImportTest : public CliTest {
 protected:
  OpCase attention(const std::string& place = "3/1/sparse_attention",
                   const std::string& scenario = "early") const {
    const std::string file = path("kept.json");
    EXPECT_EQ(run({"case", "save", scenario, "--at", place, "-o", file}).code, 0);
    return std::move(*read_case(file));
  }
  // Scenario early with lists as engines write them, without holes.
  std::string with_plain_lists() const {
    std::string text = read(ATTNSCOPE_SOURCE_DIR "/assets/scenarios/early.json");
    const std::string name = "\"adversarial\"";
    text.replace(text.find(name), name.size(), "\"plain\"");
    return write("plain.json", text);
  }
  // All tensors but caches, under their own names.
  static void add_tensors(const OpCase& kept, TensorWriter& writer,
                          const std::set<std::string>& without = {}) {
    for (const auto& [name, t] : kept.tensors) {
      if (!without.contains(name)) writer.add(name, stored_view(t));
    }
  }
  static std::string map_text(const std::string& tensors, const std::string& caches,
                              const std::string& op = "sparse_attention") {
    return R"({"format": "attnscope-import-map", "version": 1, "engine": "other", "ops": {")" + op +
           R"(": {"numbers": {"scale": 0.04419417382415922}, "tensors": {)" + tensors +
           R"(}, "caches": {)" + caches + "}}}}";
  }
  static std::string same_names(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) {
      text += fmt::format(R"({}"{}": {{"name": "{}"}})", text.empty() ? "" : ", ", name, name);
    }
    return text;
  }
  const std::vector<std::string> kTensors = {
      "q", "indices", "topk_length", "extra_indices", "extra_topk_length", "sinks", "o", "lse"};
};

// The bytes of a cache with its rows where `place` says: payload and scales of slot s.
template <class Place>
std::vector<std::uint8_t> lay_out(const StoredCache& c, std::size_t bytes, const Place& place) {
  std::vector<std::uint8_t> out(bytes, 0xee);
  const auto payload = static_cast<std::size_t>(as_payload_bytes(c.record, c.width));
  const auto scales = static_cast<std::size_t>(as_scale_bytes(c.record));
  for (std::size_t i = 0; i < c.slots.size(); ++i) {
    const auto [p, s] = place(static_cast<std::size_t>(c.slots[i]));
    const std::uint8_t* row = c.rows.data() + i * (payload + scales);
    std::memcpy(out.data() + p, row, payload);
    std::memcpy(out.data() + s, row + payload, scales);
  }
  return out;
}

TEST_F(CaseImportTest, PlanarSlabWithStrideAndInterleavedRowsGiveTheSameBits) {
  const OpCase kept = attention();
  const StoredCache &window = kept.caches.at("cache"), &extra = kept.caches.at("extra_cache");
  TensorWriter writer;
  add_tensors(kept, writer);
  // The window's pages in a slab, 4096 bytes from its beginning, 50000 apart.
  constexpr std::size_t kStride = 50000, kOffset = 4096;
  const auto slab = lay_out(
      window, kOffset + static_cast<std::size_t>(window.blocks) * kStride, [&](std::size_t slot) {
        const std::size_t page = kOffset + slot / 64 * kStride, row = slot % 64;
        return std::pair(page + row * 576, page + 64 * 576 + row * 8);
      });
  writer.add("slab", ElementType::kU8, {static_cast<std::int64_t>(slab.size())}, slab);
  // Entries as rows of 584 bytes.
  const auto rows =
      lay_out(extra, static_cast<std::size_t>(extra.blocks) * 64 * 584,
              [](std::size_t slot) { return std::pair(slot * 584, slot * 584 + 576); });
  writer.add("pool", ElementType::kU8, {extra.blocks, 64, 584}, rows);
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  const std::string map = write(
      "map.json", map_text(same_names(kTensors),
                           R"("cache": {"name": "slab", "rows_per_block": 64, "page_stride": 50000,
                  "offset": 4096}, "extra_cache": {"name": "pool", "rows_per_block": 64,
                  "rows": "interleaved"})"));
  const std::string made = path("made.json");
  const Outcome out = run({"case", "import", map, path("dump.safetensors"), "-o", made});
  ASSERT_EQ(out.code, 0) << out.err;
  auto imported = read_case(made);
  ASSERT_TRUE(imported) << imported.error().text();
  EXPECT_EQ(imported->caches.at("cache").slots, window.slots);
  EXPECT_EQ(imported->caches.at("cache").rows, window.rows);
  EXPECT_EQ(imported->caches.at("extra_cache").rows, extra.rows);
  const Outcome right = run({"case", "run", made, "--lane", "cpu", "--json"});
  EXPECT_EQ(right.code, 0) << right.out;
  EXPECT_NE(right.out.find("\"verdict\": \"equal\""), std::string::npos);
  EXPECT_EQ(run({"case", "run", made, "--lane", "mutant:sink_scaled"}).code, 1);
}

// Tensors called as the taps are, with no word of the op.
TEST_F(CaseImportTest, NamesOfTapsAloneAreGuessed) {
  const OpCase kept = attention();
  TensorWriter writer;
  add_tensors(kept, writer);
  std::map<std::string, std::vector<std::uint8_t>> pools;
  for (const auto& [name, cache] : kept.caches) {
    pools[name] = lay_out(cache, static_cast<std::size_t>(cache.blocks) * 64 * 584,
                          [](std::size_t slot) { return std::pair(slot * 584, slot * 584 + 576); });
    writer.add(name, ElementType::kU8, {cache.blocks, 64, 584}, pools[name]);
  }
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  const Outcome out = run({"case", "import", "--guess", path("dump.safetensors"), "-o",
                           path("made.json"), "--model", "tiny", "--layer", "1"});
  EXPECT_EQ(out.code, 0) << out.out << out.err;
  EXPECT_NE(out.out.find("the reference is right with it"), std::string::npos) << out.out;
  EXPECT_NE(out.out.find("extra_indices = \"extra_indices\" (by tap)"), std::string::npos)
      << out.out;
  // Where nothing is right the op that was nearest is said.
  TensorWriter wrong;
  add_tensors(kept, wrong, {"o"});
  std::vector<std::uint8_t> zeros(kept.tensors.at("o").bytes.size());
  wrong.add("o", ElementType::kBf16, kept.tensors.at("o").shape, zeros);
  for (const auto& [name, cache] : kept.caches) {
    wrong.add(name, ElementType::kU8, {cache.blocks, 64, 584}, pools[name]);
  }
  ASSERT_TRUE(wrong.write(path("wrong.safetensors")));
  const Outcome none = run({"case", "import", "--guess", path("wrong.safetensors"), "-o",
                            path("none.json"), "--model", "tiny", "--layer", "1"});
  EXPECT_EQ(none.code, 3) << none.out;
  EXPECT_NE(none.err.find("tensors fit sparse_attention"), std::string::npos) << none.err;
}

// Pages of 64 rows, padded, one behind the other; and rows of 584 bytes. No map says so.
TEST_F(CaseImportTest, PlacesOfRowsAreGuessed) {
  const OpCase kept = attention();
  const StoredCache &window = kept.caches.at("cache"), &extra = kept.caches.at("extra_cache");
  const auto padded = static_cast<std::size_t>(window.layout().page);
  const auto page = [&](std::size_t slot) { return slot / 64 * padded; };
  const auto planar =
      lay_out(window, static_cast<std::size_t>(window.blocks) * padded, [&](std::size_t slot) {
        return std::pair(page(slot) + slot % 64 * 576, page(slot) + 64 * 576 + slot % 64 * 8);
      });
  const auto rows =
      lay_out(extra, static_cast<std::size_t>(extra.blocks) * 64 * 584,
              [](std::size_t slot) { return std::pair(slot * 584, slot * 584 + 576); });
  TensorWriter writer;
  for (const auto& [name, t] : kept.tensors) {
    if (name != "q") writer.add("layers.1.sparse_attention." + name, stored_view(t));
  }
  // The query in two pieces.
  const StoredTensor& q = kept.tensors.at("q");
  const std::int64_t tokens = q.shape[0], heads = q.shape[1];
  std::vector<std::uint8_t> nope, pe;
  for (std::size_t at = 0; at < q.bytes.size(); at += 1024) {
    const auto head = q.bytes.begin() + static_cast<std::ptrdiff_t>(at);
    nope.insert(nope.end(), head, head + 896);
    pe.insert(pe.end(), head + 896, head + 1024);
  }
  const std::string attention_of = "layers.1.sparse_attention.";
  writer.add(attention_of + "q_nope", ElementType::kBf16, {tokens, heads, 448}, nope);
  writer.add(attention_of + "q_pe", ElementType::kBf16, {tokens, heads, 64}, pe);
  writer.add("layers.1.sparse_attention.cache", ElementType::kU8,
             {static_cast<std::int64_t>(planar.size())}, planar);
  writer.add("layers.1.sparse_attention.extra_cache", ElementType::kU8, {extra.blocks, 64, 584},
             rows);
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  const std::string made = path("made.json");
  const Outcome out = run({"case", "import", "--guess", path("dump.safetensors"), "-o", made,
                           "--model", "tiny", "--layer", "1"});
  ASSERT_EQ(out.code, 0) << out.out << out.err;
  EXPECT_NE(out.out.find("followed by \"layers.{layer}.sparse_attention.q_pe\""), std::string::npos)
      << out.out;
  EXPECT_NE(out.out.find("64 a page of 37440 bytes"), std::string::npos) << out.out;
  EXPECT_NE(out.out.find("the reference is right with it"), std::string::npos) << out.out;
  auto imported = read_case(made);
  ASSERT_TRUE(imported) << imported.error().text();
  EXPECT_EQ(imported->caches.at("cache").rows, window.rows);
  EXPECT_EQ(imported->caches.at("extra_cache").rows, extra.rows);
  EXPECT_EQ(run({"case", "run", made, "--lane", "cpu"}).code, 0);
}

// As DeepGEMM dumps them: wrong for fp32, right for sums of products of e4m3.
TEST_F(CaseImportTest, ScoresMayBeOfE4m3Products) {
  const OpCase kept = attention("3/1/indexer_logits");
  const StoredCache& keys = kept.caches.at("cache");
  const auto planar =
      lay_out(keys, static_cast<std::size_t>(keys.blocks) * 64 * 132, [&](std::size_t slot) {
        const std::size_t page = slot / 64 * std::size_t{64 * 132};
        return std::pair(page + slot % 64 * 128, page + 64 * 128 + slot % 64 * 4);
      });
  const StoredTensor& logits = kept.tensors.at("logits");
  const auto dump = [&](float off) {
    std::vector<float> values(logits.bytes.size() / 4);
    std::memcpy(values.data(), logits.bytes.data(), logits.bytes.size());
    float largest = 0;
    for (const float v : values) largest = std::isfinite(v) ? std::max(largest, v) : largest;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] += (i % 2 == 0 ? off : -off) * largest;
    }
    TensorWriter writer;
    for (const auto& [name, t] : kept.tensors) {
      if (name != "logits") writer.add("layers.1.indexer_logits." + name, stored_view(t));
    }
    std::vector<std::uint8_t> bytes(logits.bytes.size());
    std::memcpy(bytes.data(), values.data(), bytes.size());
    writer.add("layers.1.indexer_logits.logits", ElementType::kF32, logits.shape, bytes);
    writer.add("layers.1.indexer_logits.cache", ElementType::kU8, {keys.blocks, 64 * 132}, planar);
    EXPECT_TRUE(writer.write(path("dump.safetensors")));
  };
  std::string tensors;
  for (const auto& [name, t] : kept.tensors) {
    tensors += fmt::format(R"({}"{}": {{"name": "layers.{{layer}}.indexer_logits.{}"}})",
                           tensors.empty() ? "" : ", ", name, name);
  }
  const auto judged = [&](int rule) {
    const std::string map =
        write("map.json",
              fmt::format(R"({{"format": "attnscope-import-map", "version": 1, "engine": "other",
          "ops": {{"indexer_logits": {{"numbers": {{"score_rule": {}}}, "tensors": {{{}}},
          "caches": {{"cache": {{"name": "layers.{{layer}}.indexer_logits.cache",
          "record": "index_fp8", "rows_per_block": 64}}}}}}}}}})",
                          rule, tensors));
    const Outcome out = run({"case", "import", map, path("dump.safetensors"), "-o",
                             path("made.json"), "--layer", "1", "--force"});
    EXPECT_EQ(out.code, 0) << out.out << out.err;
    return run({"case", "run", path("made.json"), "--lane", "ref.sim"}).code;
  };
  const auto guessed = [&] {
    return run({"case", "import", "--guess", path("dump.safetensors"), "-o", path("made.json"),
                "--model", "tiny", "--layer", "1", "--force"});
  };
  dump(3e-4f);
  EXPECT_EQ(judged(0), 1);
  EXPECT_EQ(judged(2), 0);
  const Outcome right = guessed();
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_NE(right.out.find("the reference is right with it"), std::string::npos) << right.out;
  EXPECT_NE(right.out.find("score_rule 2"), std::string::npos) << right.out;
  EXPECT_EQ(run({"case", "run", path("made.json"), "--lane", "cpu"}).code, 0);
  EXPECT_EQ(run({"case", "export", path("made.json"), "--python"}).code, 0);
  EXPECT_NE(read(path("made.py")).find("scores_e4m3"), std::string::npos);
  // A capture keeps the rule for whatever is made of it.
  const Outcome whole = run({"case", "import", path("made.map.json"), path("dump.safetensors"),
                             "-o", path("whole.acap"), "--model", "tiny"});
  EXPECT_EQ(whole.code, 0) << whole.out << whole.err;
  const std::string index = read(path("whole.acap/index.json"));
  EXPECT_NE(index.find("vllm,index_scores=e4m3"), std::string::npos) << index;
  dump(0);
  EXPECT_EQ(judged(0), 0);
  EXPECT_EQ(guessed().out.find("score_rule 2"), std::string::npos);
  dump(2e-2f);
  EXPECT_EQ(judged(2), 1);
}

// Codes of the FNUZ kind stand for half the value: doubled scales, and -0 is NaN.
TEST_F(CaseImportTest, FnuzCodesAndScalesOfTheirOwnBecomeOurs) {
  const OpCase kept = attention();
  const StoredCache& window = kept.caches.at("cache");
  const auto payloads = static_cast<std::size_t>(window.blocks) * 64 * 576;
  std::vector<std::uint8_t> codes(payloads, 0),
      scales(static_cast<std::size_t>(window.blocks) * 512);
  std::vector<std::uint8_t> expected = window.rows;
  for (std::size_t i = 0; i < window.slots.size(); ++i) {
    const auto slot = static_cast<std::size_t>(window.slots[i]);
    std::uint8_t* row = expected.data() + i * 584;
    for (int d = 0; d < 448; ++d) {
      if ((row[d] & 0x7f) >= 0x7e) --row[d];  // 448: no code of the other kind
      if (row[d] == 0x80) row[d] = 0;
    }
    std::memcpy(codes.data() + slot * 576, row, 576);
    std::memcpy(scales.data() + slot * 8, row + 576, 8);
    for (int b = 0; b < 7; ++b) ++scales[slot * 8 + static_cast<std::size_t>(b)];
  }
  const auto import = [&]() -> Result<ImportedCase> {
    TensorWriter writer;
    add_tensors(kept, writer, {"extra_indices", "extra_topk_length", "lse"});
    writer.add("layers.1.codes", ElementType::kU8, {window.blocks, 64, 576}, codes);
    writer.add("scales", ElementType::kU8, {window.blocks, 64, 8}, scales);
    EXPECT_TRUE(writer.write(path("dump.safetensors")));
    const std::string map =
        write("map.json", map_text(same_names({"q", "indices", "topk_length", "sinks", "o", "lse"}),
                                   R"("cache": {"name": "layers.{layer}.codes",
                                      "scales": "scales", "rows_per_block": 64,
                                      "codes": "e4m3fnuz"})"));
    auto read = read_import_map(map);
    if (!read) return read.error();
    std::vector<TensorFile> files;
    files.push_back(std::move(*TensorFile::open(path("dump.safetensors"))));
    return import_case(read->ops.front(), files, "other", 1);
  };
  auto made = import();
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(made->kept.caches.at("cache").rows, expected);
  EXPECT_EQ(made->kept.unknown, std::set<std::string>{"lse"});
  ASSERT_TRUE(write_case(made->kept, path("made.json")));
  EXPECT_NE(run({"case", "run", path("made.json")}).out.find("o  "), std::string::npos);
  // A row that is read and has no codes here.
  codes[static_cast<std::size_t>(window.slots.front()) * 576] = 0x7f;
  auto refused = import();
  ASSERT_FALSE(refused);
  const std::string& why = refused.error().message;
  EXPECT_NE(why.find("FNUZ codes of +-240"), std::string::npos) << why;
  EXPECT_NE(why.find(" of \"layers.1.codes\" holds"), std::string::npos) << why;
}

TEST_F(CaseImportTest, FnuzValuesAreHalfOfTheSameCode) {
  EXPECT_EQ(e4m3_value(0x38, false), 1.0f);
  EXPECT_EQ(e4m3_value(0x38, true), 0.5f);
  EXPECT_EQ(e4m3_value(0x40, true), 1.0f);
  EXPECT_EQ(e4m3_value(0x7f, true), 240.0f);
  EXPECT_EQ(e4m3_value(0x01, true), 0x1p-10f);
  EXPECT_TRUE(std::isnan(e4m3_value(0x80, true)));
  EXPECT_TRUE(std::isnan(e4m3_value(0x7f, false)));
}

// Rows of 512 e4m3 codes with one scale for all, q in another order of axes, i64 indices.
TEST_F(CaseImportTest, PlainRowsBecomeAWorkspace) {
  std::vector<std::uint8_t> codes(3 * 512);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 7 % 0x70);
  std::vector<float> q(2 * 512), scale = {0.25f}, sinks = {0, 1};
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 16) / 64;
  const std::vector<std::int64_t> indices = {2, 0}, lens = {2};
  TensorWriter writer;
  writer.add("rows", ElementType::kF8E4m3, {3, 1, 512}, codes);
  writer.add("q", ElementType::kF32, {2, 1, 512}, q);
  writer.add("scale", ElementType::kF32, {1}, scale);
  writer.add("sinks", ElementType::kF32, {2}, sinks);
  writer.add("indices", ElementType::kI64, {1, 2}, indices);
  writer.add("topk_length", ElementType::kI64, {1}, lens);
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  const std::string map =
      write("map.json", map_text(same_names({"indices", "topk_length", "sinks"}) +
                                     R"(, "q": {"name": "q", "permute": [1, 0, 2]},
                                  "rows": {"name": "rows", "shape": [-1, 512], "decode": "e4m3",
                                           "factor_name": "scale"})",
                                 "", "workspace_attention"));
  const Outcome out = run({"case", "import", map, path("dump.safetensors"), "-o", path("w.json")});
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_NE(out.out.find("o is not in the dump"), std::string::npos);
  auto made = read_case(path("w.json"));
  ASSERT_TRUE(made) << made.error().text();
  const as_tensor rows = stored_view(made->tensors.at("rows"));
  EXPECT_EQ(element(rows, 2, 5), 0.25 * e4m3_value(codes[2 * 512 + 5], false));
  const as_tensor query = stored_view(made->tensors.at("q"));
  EXPECT_EQ(query.shape[0], 1);
  EXPECT_EQ(query.shape[1], 2);
  // It runs, and nothing is known of what it should put out.
  const Outcome ran = run({"case", "run", path("w.json"), "--lane", "cpu"});
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_NE(ran.out.find("not compared"), std::string::npos) << ran.out;
}

TEST_F(CaseImportTest, WhatDoesNotFitIsNamed) {
  const OpCase kept = attention("1/1/residual");
  TensorWriter writer;
  add_tensors(kept, writer);
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  const auto error = [&](const std::string& tensors, const std::string& op = "residual") {
    std::string text = map_text(tensors, "", op);
    const std::string numbers = R"("numbers": {"scale": 0.04419417382415922}, )";
    text.replace(text.find(numbers), numbers.size(), "");
    return run({"case", "import", write("map.json", text), path("dump.safetensors"), "--op", op,
                "-o", path("x.json")})
        .err;
  };
  EXPECT_NE(error(same_names({"h", "nothing"})).find("unknown key"), std::string::npos);
  EXPECT_NE(error(R"("h": {"name": "hh"}, "y": {"name": "y"})").find("no tensor \"hh\""),
            std::string::npos);
  EXPECT_NE(error(same_names({"h"})).find("the map gives no y"), std::string::npos);
  EXPECT_NE(error(same_names({"h"}) + R"(, "y": {"name": "y", "shape": [1, 512]})")
                .find("y has 1 tokens"),
            std::string::npos);
  EXPECT_NE(error(same_names({"h"}) + R"(, "y": {"name": "y", "shape": [9000, 512]})")
                .find("reaches element"),
            std::string::npos);
  EXPECT_NE(error(same_names({"h"}) + R"(, "y": {"name": "y", "permute": [0, 0]})")
                .find("every axis once"),
            std::string::npos);
  EXPECT_NE(error(same_names({"h"}) + R"(, "y": {"name": "y", "stride": [1]})").find("stride"),
            std::string::npos);
  EXPECT_NE(error(R"("logits": {"name": "h"}, "lens": {"name": "y", "shape": [1]})", "indexer_topk")
                .find("has no i32 value"),
            std::string::npos);
  EXPECT_EQ(run({"case", "import", "nowhere", path("dump.safetensors"), "-o", path("x.json")}).code,
            3);
}

// What is left of an axis is whole rows, or the map is wrong.
TEST_F(CaseImportTest, AShapeThatDoesNotDivideIsAnError) {
  const OpCase kept = attention("1/1/residual");
  TensorWriter writer;
  add_tensors(kept, writer);
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  const auto import = [&](const std::string& h) {
    std::string text =
        map_text(R"("h": {"name": "h")" + h + R"(}, "y": {"name": "y"})", "", "residual");
    const std::string numbers = R"("numbers": {"scale": 0.04419417382415922}, )";
    text.replace(text.find(numbers), numbers.size(), "");
    return run({"case", "import", write("map.json", text), path("dump.safetensors"), "-o",
                path("x.json"), "--force"});
  };
  const std::int64_t tokens = kept.tensors.at("h").shape[0];
  const Outcome uneven = import(R"(, "shape": [-1, 500])");
  EXPECT_EQ(uneven.code, 3) << uneven.out;
  EXPECT_NE(uneven.err.find(fmt::format("{} elements are no multiple of 500", tokens * 512)),
            std::string::npos)
      << uneven.err;
  EXPECT_EQ(import(R"(, "shape": [-1, 512])").code, 0);
  // Rows that lie further apart than they are long: as many as there are.
  const Outcome strided = import(R"(, "shape": [-1, 512], "stride": [1024, 1])");
  EXPECT_EQ(strided.code, 3);
  EXPECT_NE(strided.err.find(fmt::format("h has {};", (tokens + 1) / 2)), std::string::npos)
      << strided.err;
}

// An output that the dump lacks has the type of the inputs that have the same choice.
TEST_F(CaseImportTest, AMergeInFp32WithoutItsOutputRuns) {
  const std::vector<float> a = {1, 2, 3, 4}, b = {5, 6, 7, 8}, lse = {0};
  TensorWriter writer;
  writer.add("a", ElementType::kF32, {1, 1, 4}, a);
  writer.add("b", ElementType::kF32, {1, 1, 4}, b);
  writer.add("lse_a", ElementType::kF32, {1, 1}, lse);
  writer.add("lse_b", ElementType::kF32, {1, 1}, lse);
  const std::vector<float> merged = {0.6931472f};
  writer.add("lse", ElementType::kF32, {1, 1}, merged);
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  std::string text =
      map_text(same_names({"a", "b", "lse_a", "lse_b", "out", "lse"}), "", "merge_states");
  const std::string numbers = R"("numbers": {"scale": 0.04419417382415922}, )";
  text.replace(text.find(numbers), numbers.size(), "");
  const Outcome made = run({"case", "import", write("map.json", text), path("dump.safetensors"),
                            "-o", path("merge.json")});
  ASSERT_EQ(made.code, 0) << made.err;
  auto kept = read_case(path("merge.json"));
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->tensors.at("out").dtype, AS_F32);
  for (const char* lane : {"cpu", "ref.sim"}) {
    const Outcome ran = run({"case", "run", path("merge.json"), "--lane", lane});
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  }
}

// A name with a letter too many leaves its op out: that is said.
TEST_F(CaseImportTest, WhatFoundNothingInTheOtherIsSaid) {
  const OpCase kept = attention("1/1/residual");
  TensorWriter writer;
  add_tensors(kept, writer);
  const std::vector<float> more(4, 1);
  writer.add("layers.1.mistyped", ElementType::kF32, {4}, more);
  writer.add("layers.2.known", ElementType::kF32, {4}, more);
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  const std::string map = write("map.json", R"({"format": "attnscope-import-map", "version": 1,
    "engine": "other", "token_ids": {"name": "ids"}, "ops": {
      "residual": {"tensors": {"h": {"name": "h"}, "y": {"name": "y"}, "out": {"name": "o"}}},
      "sample": {"tensors": {"logits": {"name": "logits"}, "tokens": {"name": "tokens"}}},
      "attn_norm": {"numbers": {"eps": 1e-6}, "tensors": {"x": {"name": "h"},
        "weight": {"name": "layers.{layer}.known"}, "y": {"name": "out"}}}}})");
  const Outcome out =
      run({"case", "import", map, path("dump.safetensors"), "--layer", "1", "-o", path("x.json")});
  ASSERT_EQ(out.code, 0) << out.err;
  for (const char* text :
       {"residual: no tensor of the dump is named \"o\" (out)\n",
        "attn_norm: no tensor of the dump is named \"layers.{layer}.known\" (weight)\n",
        "none of their names in the map is in the dump: sample\n",
        "of the dump nothing used 2 tensors: \"layers.1.mistyped\", \"out\"\n"}) {
    EXPECT_NE(out.out.find(text), std::string::npos) << text << out.out;
  }
  // Of one op alone what others are for is no mistake.
  const Outcome one = run({"case", "import", map, path("dump.safetensors"), "--layer", "1", "--op",
                           "residual", "-o", path("y.json")});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.out.find("of the dump nothing used 1 tensor: \"layers.1.mistyped\"\n"),
            std::string::npos)
      << one.out;
  EXPECT_EQ(one.out.find("sample"), std::string::npos) << one.out;
}

// The view of one layer in a slab: its first axis counts pages, the offset lies inside of each.
TEST_F(CaseImportTest, AnOffsetDoesNotMoveThePagesApart) {
  const OpCase kept = attention();
  const StoredCache& window = kept.caches.at("cache");
  constexpr std::size_t kStride = 50000, kOffset = 4096;
  const auto slab =
      lay_out(window, static_cast<std::size_t>(window.blocks) * kStride, [&](std::size_t slot) {
        const std::size_t page = kOffset + slot / 64 * kStride, row = slot % 64;
        return std::pair(page + row * 576, page + 64 * 576 + row * 8);
      });
  ImportCache cache;
  cache.name = "slab";
  cache.record = AS_RECORD_LATENT;
  cache.rows_per_block = 64;
  cache.offset = kOffset;
  auto pages = import_pages(cache, slab, window.blocks, {});
  ASSERT_TRUE(pages) << pages.error().text();
  EXPECT_EQ(pages->blocks, window.blocks);
  for (std::size_t i = 0; i < window.slots.size(); ++i) {
    const auto slot = static_cast<std::size_t>(window.slots[i]);
    const std::uint8_t* page =
        pages->bytes.data() + slot / 64 * static_cast<std::size_t>(pages->page_bytes);
    ASSERT_EQ(std::memcmp(page + slot % 64 * 576, window.rows.data() + i * 584, 576), 0) << slot;
  }
}

TEST_F(CaseImportTest, CodesAndPartsThatWouldBeMisreadAreRefused) {
  const OpCase kept = attention();
  const StoredCache& window = kept.caches.at("cache");
  const auto bytes = lay_out(window, static_cast<std::size_t>(window.blocks) * 64 * 584,
                             [](std::size_t s) { return std::pair(s * 584, s * 584 + 576); });
  const std::vector<std::uint8_t> codes(kept.tensors.at("q").bytes.size() / 2, 0x38);
  const auto import = [&](const std::set<std::string>& without, const std::string& q,
                          const std::vector<std::string>& others) {
    TensorWriter writer;
    add_tensors(kept, writer, without);
    writer.add("pool", ElementType::kU8, {window.blocks, 64, 584}, bytes);
    const as_tensor own = stored_view(kept.tensors.at("q"));
    writer.add("codes", ElementType::kF8E4m3, {own.shape[0], own.shape[1], own.shape[2]}, codes);
    EXPECT_TRUE(writer.write(path("dump.safetensors")));
    const std::string map = write(
        "map.json",
        map_text(same_names(others) + R"(, "q": )" + q,
                 R"("cache": {"name": "pool", "rows_per_block": 64, "rows": "interleaved"})"));
    return run({"case", "import", map, path("dump.safetensors"), "-o", path("x.json"), "--force"});
  };
  const std::vector<std::string> window_alone = {"indices", "topk_length", "sinks", "o", "lse"};
  EXPECT_NE(import({}, R"({"name": "codes"})", window_alone)
                .err.find("\"codes\" holds F8_E4M3 codes, bf16 is wanted"),
            std::string::npos);
  EXPECT_NE(import({}, R"({"name": "q", "decode": "e4m3"})", window_alone)
                .err.find("is BF16, which has no codes to decode"),
            std::string::npos);
  std::vector<std::string> parts = window_alone;
  parts.insert(parts.end(), {"extra_indices", "extra_topk_length"});
  EXPECT_NE(import({}, R"({"name": "q"})", parts).err.find("extra_cache is not"),
            std::string::npos);
  const Outcome alone = import({"extra_indices", "extra_topk_length"}, R"({"name": "q"})", parts);
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_NE(alone.out.find("attention over the window alone"), std::string::npos) << alone.out;
}

TEST_F(CaseImportTest, ATableOfAnotherLayerTypeIsRefused) {
  const OpCase kept = attention("1/1/q_rope_kv_insert");
  const StoredRope& rope = kept.ropes.at("rope");
  const StoredCache& window = kept.caches.at("cache");
  TensorWriter writer;
  add_tensors(kept, writer);
  as_rope own{};
  own.base = rope.base;
  own.factor = rope.factor;
  own.original_max_pos = rope.original_max_pos;
  own.beta_fast = rope.beta_fast;
  own.beta_slow = rope.beta_slow;
  std::vector<float> table(static_cast<std::size_t>(rope.table_rows) * AS_ROPE_DIM);
  cpu::build_rope_table(own, rope.table_rows, table.data(), nullptr);
  writer.add("table", ElementType::kF32, {rope.table_rows, AS_ROPE_DIM}, table);
  const auto bytes = lay_out(window, static_cast<std::size_t>(window.blocks) * 64 * 584,
                             [](std::size_t s) { return std::pair(s * 584, s * 584 + 576); });
  writer.add("pool", ElementType::kU8, {window.blocks, 64, 584}, bytes);
  ASSERT_TRUE(writer.write(path("dump.safetensors")));
  const auto import = [&](double base) {
    std::string text =
        map_text(same_names({"q_raw", "kv", "positions", "slots", "q"}),
                 R"("cache": {"name": "pool", "rows_per_block": 64, "rows": "interleaved"})",
                 "q_rope_kv_insert");
    const std::string numbers = R"("scale": 0.04419417382415922)";
    text.replace(text.find(numbers), numbers.size(), R"("eps": 1e-6)");
    text.insert(text.find(R"("tensors")"),
                fmt::format(R"("ropes": {{"rope": {{"base": {}, "factor": {}, )"
                            R"("original_max_pos": {}, "table": "table"}}}}, )",
                            base, rope.factor, rope.original_max_pos));
    return run({"case", "import", write("map.json", text), path("dump.safetensors"), "--op",
                "q_rope_kv_insert", "-o", path("x.json"), "--force"});
  };
  const Outcome right = import(rope.base);
  EXPECT_EQ(right.code, 0) << right.err;
  const Outcome wrong = import(rope.base * 2);
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("\"table\" is no table of base"), std::string::npos) << wrong.err;
}

// A scenario has a "model" too, which a map's is not.
TEST_F(CaseImportTest, WhatIsNoMapIsSaidToBeNone) {
  const std::string scenario = write("s.json", R"({"version": 1, "model": {"preset": "tiny"}})");
  const Outcome out =
      run({"case", "import", scenario, path("dump.safetensors"), "-o", path("o.json")});
  EXPECT_EQ(out.code, 3);
  EXPECT_NE(out.err.find("s.json: is no map of tensors; it begins with \"format\": "
                         "\"attnscope-import-map\""),
            std::string::npos)
      << out.err;
}

TEST_F(CaseImportTest, TheMapsOfThisProgramAreReadAndTakeADumpOfTheirNames) {
  for (const char* name : {"vllm", "sglang", "hf"}) {
    auto map = read_import_map(name);
    ASSERT_TRUE(map) << map.error().text();
    EXPECT_EQ(map->engine, name);
    EXPECT_GE(map->ops.size(), 3u);
  }
  const OpCase kept = attention("3/1/sparse_attention", with_plain_lists());
  TensorWriter writer;
  for (const auto& [ours, theirs] :
       std::map<std::string, std::string>{{"q", "layers.1.q"},
                                          {"indices", "layers.1.swa_indices"},
                                          {"topk_length", "swa_lens"},
                                          {"extra_indices", "layers.1.extra_indices_in_kvcache"},
                                          {"extra_topk_length", "layers.1.extra_topk_length"},
                                          {"sinks", "layers.1.attn_sink"},
                                          {"o", "layers.1.attn_out"},
                                          {"lse", "layers.1.lse"}}) {
    writer.add(theirs, stored_view(kept.tensors.at(ours)));
  }
  const auto planar = [](std::size_t slot) {
    const std::size_t page = slot / 64 * 64 * 584, row = slot % 64;
    return std::pair(page + row * 576, page + 64 * 576 + row * 8);
  };
  std::vector<std::vector<std::uint8_t>> bytes;
  for (const char* name : {"cache", "extra_cache"}) {
    const StoredCache& c = kept.caches.at(name);
    bytes.push_back(lay_out(c, static_cast<std::size_t>(c.blocks) * 64 * 584, planar));
  }
  writer.add("layers.1.swa_kv_cache", ElementType::kU8, {kept.caches.at("cache").blocks, 64, 584},
             bytes[0]);
  writer.add("layers.1.kv_cache", ElementType::kU8, {kept.caches.at("extra_cache").blocks, 64, 584},
             bytes[1]);
  ASSERT_TRUE(writer.write(path("vllm.safetensors")));
  const Outcome out = run(
      {"case", "import", "vllm", path("vllm.safetensors"), "--layer", "1", "-o", path("v.json")});
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_EQ(run({"case", "run", path("v.sparse_attention.json"), "--lane", "ref.sim"}).code, 0);
  EXPECT_EQ(run({"case", "import", "vllm", path("vllm.safetensors"), "-o", path("v.json")}).code,
            3);
}

}  // namespace case_import_test
}  // namespace attnscope
